/* The compiled kernels as data (gpu/cuda.h). */
	.section .rodata
	.globl gw_gpu_image, gw_gpu_image_bytes
	.type gw_gpu_image, @object
	.type gw_gpu_image_bytes, @object
	.balign 16
gw_gpu_image:
	.incbin "gpu/overwrite.fatbin"
gw_gpu_image_end:
	.size gw_gpu_image, gw_gpu_image_end - gw_gpu_image
	.balign 8
gw_gpu_image_bytes:
	.quad gw_gpu_image_end - gw_gpu_image
	.size gw_gpu_image_bytes, 8
	.section .note.GNU-stack, "", @progbits
