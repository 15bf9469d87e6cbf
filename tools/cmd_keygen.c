#include <stdio.h>
#include <string.h>

#include "base/hex.h"
#include "tools/records.h"

static const struct opt opts[] = {
	{"o", "FILE", "where the secret key goes (0600); FILE.pub gets the public one"},
	{"kind", "KIND", "root, release, admission or host (default: host)"},
	{"comment", "TEXT", "a line that stands in both files"},
	{"json", NULL, "print a JSON document"},
	{NULL, NULL, NULL},
};

static int print_key(struct args *a, const struct gw_key *k, const char *path)
{
	char id[GW_KEY_ID_CHARS], curve[GW_Z85_CHARS], hex[65];
	int host = k->kind == GW_KEY_HOST;

	(void)gw_key_id(id, k->pk);
	(void)gw_hex(hex, k->pk, 32);
	(void)gw_z85_encode(curve, k->curve_pk);
	if (arg_flag(a, "json"))
		return print_json(json_pack("{s:s, s:s, s:s, s:s, s:s*}", "file", path, "kind", gw_key_kind_name(k->kind), "id",
					    id, "ed25519", hex, "curve", host ? curve : NULL),
				  &a->why);
	(void)printf("%s key %s\n  secret   %s\n  public   %s.pub\n  ed25519  %s\n", gw_key_kind_name(k->kind), id, path, path, hex);
	if (host)
		(void)printf("  curve    %s   (for --bootstrap HOST:PORT=KEY)\n", curve);
	return 0;
}

static int run(struct args *a)
{
	const char *path = arg_value(a, "o"), *kind_name = arg_value(a, "kind");
	enum gw_key_kind kind = gw_key_kind_parse(kind_name ? kind_name : "host");
	struct gw_key k;
	int err;

	if (!path || !path[0])
		return gw_diag_set(&a->why, GW_EINVAL, "where should the key go? give -o FILE");
	if (!kind)
		return gw_diag_set(&a->why, GW_EINVAL, "--kind %s: root, release, admission or host", kind_name);
	err = gw_trust_init();
	if (!err)
		err = gw_key_make(&k, kind, arg_value(a, "comment"), &a->why);
	if (err)
		return err;
	err = record_write_key(a, path, &k);
	if (!err)
		err = print_key(a, &k, path);
	gw_key_wipe(&k);
	return err;
}

const struct cmd cmd_keygen = {"keygen", "", "makes a key pair: secret file and public file", 0, 0, opts, run};
