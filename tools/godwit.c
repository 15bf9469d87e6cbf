/* main of `godwit`: finds the verb, parses its options, maps errors to exit codes. */
#include "config.h"
#include "tools/cmd.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "io/os/fs_os.h"

#define GW_COMMAND(name) extern const struct cmd cmd_##name;
#include "tools/commands.def"
#undef GW_COMMAND

static const struct cmd *const commands[] = {
#define GW_COMMAND(name) &cmd_##name,
#include "tools/commands.def"
#undef GW_COMMAND
	NULL,
};

/* "mesh" is the family of "mesh init". */
static int is_in_family(const struct cmd *c, const char *word)
{
	size_t n = strlen(word);

	return !strncmp(c->verb, word, n) && c->verb[n] == ' ';
}

/* All verbs, or those of one family. */
static void list_verbs(FILE *to, const char *family)
{
	for (const struct cmd *const *c = commands; *c; c++)
		if (!family || is_in_family(*c, family))
			(void)fprintf(to, "  %-14s %s\n", (*c)->verb, (*c)->does);
}

static int usage(FILE *to, int code)
{
	(void)fprintf(to, "usage: godwit VERB [OPTION…] [ARGUMENT…]\n\n");
	list_verbs(to, NULL);
	(void)fprintf(to, "\n`godwit VERB --help` says more. Exit codes: 0 fine, 1 failed, 2 usage, 3 unreachable, 4 unhealthy,\n"
			  "5 version not met or timed out, 6 digest, base, fingerprint or signature refused, 7 configuration,\n"
			  "8 partly done, 130 interrupted.\n");
	return code;
}

static int help(const struct cmd *c, FILE *to, int code)
{
	(void)fprintf(to, "usage: godwit %s [OPTION…]%s%s\n\n%s\n", c->verb, c->args[0] ? " " : "", c->args, c->does);
	for (const struct opt *o = c->opts; o->name; o++) {
		char left[64];

		(void)snprintf(left, sizeof left, "%s%s%s%s", o->name[1] ? "--" : "-", o->name, o->arg ? " " : "",
			       o->arg ? o->arg : "");
		(void)fprintf(to, "  %-24s %s\n", left, o->help);
	}
	(void)fprintf(to, "  %-24s %s\n", "--help", "this text");
	return code;
}

/* How many words of argv name the verb c, or 0. */
static int verb_words(const struct cmd *c, int argc, char **argv)
{
	const char *space = strchr(c->verb, ' ');
	size_t first = space ? (size_t)(space - c->verb) : strlen(c->verb);

	if (argc < 1 || strlen(argv[0]) != first || strncmp(argv[0], c->verb, first))
		return 0;
	if (!space)
		return 1;
	return argc > 1 && !strcmp(argv[1], space + 1) ? 2 : 0;
}

static int is_family(const char *word)
{
	for (const struct cmd *const *c = commands; *c; c++)
		if (is_in_family(*c, word))
			return 1;
	return 0;
}

/* Words that are no verb: a family alone, with or without --help, or a mistake. */
static int no_verb(const char *word, const char *next)
{
	int asked = next && (!strcmp(next, "--help") || !strcmp(next, "-h"));

	if (!is_family(word)) {
		(void)fprintf(stderr, "godwit: unknown verb %s; `godwit --help` lists them\n", word);
		return 2;
	}
	if (next && !asked)
		(void)fprintf(stderr, "godwit %s: unknown verb %s\n", word, next);
	(void)fprintf(asked ? stdout : stderr, "usage: godwit %s VERB [OPTION…] [ARGUMENT…]\n\n", word);
	list_verbs(asked ? stdout : stderr, word);
	return asked ? 0 : 2;
}

static int option_index(const struct cmd *c, const char *name, size_t n)
{
	for (int i = 0; c->opts[i].name; i++)
		if (strlen(c->opts[i].name) == n && !strncmp(c->opts[i].name, name, n))
			return i;
	return -1;
}

/* One option at argv[*i]: "--name value", "--name=value", "-x value", "-xvalue". */
static int parse_option(struct args *a, int argc, char **argv, int *i)
{
	const char *text = argv[*i], *name = text + (text[1] == '-' ? 2 : 1), *value = NULL;
	size_t n = text[1] == '-' ? strcspn(name, "=") : 1;
	int at = option_index(a->cmd, name, n);

	if (at < 0)
		return gw_diag_set(&a->why, GW_EINVAL, "unknown option %s", text);
	if (name[n])
		value = name + n + (name[n] == '=');
	if (!a->cmd->opts[at].arg) {
		if (value)
			return gw_diag_set(&a->why, GW_EINVAL, "option %s takes no value", text);
		a->value[at] = "";
		return 0;
	}
	if (!value && *i + 1 >= argc)
		return gw_diag_set(&a->why, GW_EINVAL, "option %s needs a value: %s", text, a->cmd->opts[at].arg);
	a->value[at] = value ? value : argv[++*i];
	return 0;
}

/* Options may stand anywhere before "--"; what is left moves to the front of argv. */
static int parse(struct args *a, int argc, char **argv)
{
	int only_args = 0;

	a->pos = argv;
	for (int i = 0; i < argc; i++) {
		int err;

		if (only_args || argv[i][0] != '-' || !argv[i][1]) {
			argv[a->count++] = argv[i];
			continue;
		}
		if (!strcmp(argv[i], "--")) {
			only_args = 1;
			continue;
		}
		err = parse_option(a, argc, argv, &i);
		if (err)
			return err;
	}
	if (a->count < a->cmd->min)
		return gw_diag_set(&a->why, GW_EINVAL, "too few arguments: needs %s", a->cmd->args);
	if (a->count > a->cmd->max && (a->cmd->max || !a->cmd->min))
		return gw_diag_set(&a->why, GW_EINVAL, "too many arguments: takes %s",
				   a->cmd->args[0] ? a->cmd->args : "none");
	return 0;
}

static int run(const struct cmd *c, int argc, char **argv)
{
	struct args a = {.cmd = c, .fs = gw_fs_os()};
	int err;

	for (int i = 0; i < argc && strcmp(argv[i], "--"); i++)
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
			return help(c, stdout, 0);
	err = parse(&a, argc, argv);
	if (err) {
		(void)fprintf(stderr, "godwit %s: %s\n", c->verb, a.why.text);
		return help(c, stderr, 2);
	}
	err = c->run(&a);
	if (err)
		(void)fprintf(stderr, "godwit %s: %s\n", c->verb, a.why.text[0] ? a.why.text : gw_err_text(err));
	if (fflush(stdout) && !err)
		err = GW_EIO;
	return a.exit_code ? a.exit_code : gw_err_exit_code(err);
}

int main(int argc, char **argv)
{
	gw_log_setup(GW_LOG_WARN, GW_LOG_TEXT, NULL);
	(void)signal(SIGPIPE, SIG_IGN);
	if (argc < 2)
		return usage(stderr, 2);
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
		return usage(stdout, 0);
	if (!strcmp(argv[1], "--version")) {
		(void)printf("godwit %s\n", PACKAGE_VERSION);
		return 0;
	}
	for (const struct cmd *const *c = commands; *c; c++) {
		int words = verb_words(*c, argc - 1, argv + 1);

		if (words)
			return run(*c, argc - 1 - words, argv + 1 + words);
	}
	return no_verb(argv[1], argv[2]);
}
