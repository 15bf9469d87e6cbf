/* Small files that the verbs of keys and records share: reading them whole, and keys by their kind. */
#ifndef GW_TOOLS_RECORDS_H
#define GW_TOOLS_RECORDS_H

#include "tools/cmd.h"
#include "trust/key.h"
#include "trust/root.h"

/* The whole file, malloced (at least one byte); GW_ELIMIT beyond max. The message names the path. */
int record_read(struct args *a, const char *path, size_t max, uint8_t **p, size_t *n);

/* The record that --root names, which the verb declares; with the digest `pin`, where that is not NULL. */
int record_root(struct args *a, const struct gw_digest *pin, struct gw_root *root);

/* A secret key file of that kind; refused where others than its owner may read it. Wipe it after use. */
int record_secret_key(struct args *a, const char *path, enum gw_key_kind kind, struct gw_key *k);

/* Writes PATH (secret, 0600) and PATH.pub, or neither; existing ones are not replaced. */
int record_write_key(struct args *a, const char *path, const struct gw_key *k);

/* The newest root of a mesh folder: root.v1, then root.v2, … as far as they go, each verified by the one before. */
int record_newest_root(struct args *a, const char *dir, struct gw_root *root);

#endif
