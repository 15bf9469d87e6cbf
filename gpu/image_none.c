/* A build without nvcc has no kernels. */
#include "gpu/cuda.h"

const unsigned char gw_gpu_image[1] = {0};
const size_t gw_gpu_image_bytes = 0;
