/* The commands of ftlaunch. One file launcher/cmd/NAME.c per command (or family) defines
 *
 *     const struct ft_cmd_ops ft_cmd_NAME = {&command};      // a struct ft_command with its option table (base/argv.h)
 *
 * and NAME is a word of FT_COMMANDS in launcher/CMakeLists.txt; nothing else knows the list. --help, the man page and shell
 * completion come from the same rows. A command's main reads:
 *
 *     struct ft_cmd c;
 *     ft_cmd_begin(&c, self, argc, argv);
 *     for (int id; (id = ft_cmd_next(&c, &value)) > 0;) switch (id) { case OPT_N: … }   // --help, errors, words, --set … are done inside
 *     if (c.done) return ft_cmd_end(&c);
 *     if (!ft_cmd_read_job(&c)) return ft_cmd_end(&c);                  // faults printed, status 2
 *     …
 *     return ft_cmd_end(&c);
 */
#ifndef FT_LAUNCHER_CMD_CMD_H
#define FT_LAUNCHER_CMD_CMD_H

#include "base/argv.h"
#include "launcher/config.h"
#include "launcher/plan.h"

struct ft_cmd_ops {
    const struct ft_command *command;
    bool hidden; /* not in --help, man page, completion */
};
struct ft_cmd_entry {
    const char *name;
    const struct ft_cmd_ops *ops; /* NULL: known, but not in this build */
};
extern const struct ft_cmd_entry ft_cmd_table[]; /* generated; ends with {0, 0} */

enum ft_color { FT_COLOR_AUTO, FT_COLOR_NEVER, FT_COLOR_ALWAYS };

/* Rows that commands put at the end of their option tables. */
enum { FT_OPT_SET = 1000, FT_OPT_JSON, FT_OPT_QUIET, FT_OPT_VERBOSE, FT_OPT_COLOR };
#define FT_OPTIONS_SHARED                                                                                                          \
    {"quiet", 'q', NULL, "only errors", FT_OPT_QUIET}, {"verbose", 'v', NULL, "say more (-vv: everything)", FT_OPT_VERBOSE},       \
    {                                                                                                                              \
        "color", 0, "auto|never|always", "colours on a terminal (NO_COLOR is respected)", FT_OPT_COLOR                             \
    }
#define FT_OPTION_SET                                                                                                              \
    {                                                                                                                              \
        "set", 0, "SECTION.KEY=VALUE", "replaces a value of the files; the last one wins", FT_OPT_SET                              \
    }
#define FT_OPTION_JSON                                                                                                             \
    {                                                                                                                              \
        "json", 0, NULL, "facts as one JSON object on stdout", FT_OPT_JSON                                                         \
    }

struct ft_cmd {
    const struct ft_command *self;
    struct ft_arena *arena;
    struct ft_argv argv;
    char **words; /* JOB.ini… (or RUN…), in order */
    size_t n_words, words_cap;
    char **sets; /* --set, in order */
    size_t n_sets, sets_cap;
    bool json;
    int verbose; /* -1 with -q, 1 with -v, 2 with -vv */
    enum ft_color color;
    bool done;  /* main has to return now */
    int status; /* what it returns */
    /* after ft_cmd_read_job */
    struct ft_ini *ini;
    struct ft_faults faults;
    const struct ft_launcher_config *config;
    struct ft_plan_request planning; /* of ft_cmd_make_plan */
    bool uses_nodes;                 /* run, check: nodes that failed lately are planned last */
    const char *job_name;            /* base name of the last file without .ini; NULL: no file */
};

void ft_cmd_begin(struct ft_cmd *c, const struct ft_command *self, int argc, char **argv);
/* The id of the next option that is the command's own (value set when it takes one), or FT_ARG_END. Shared options and words
 * are kept in *c; --help and mistakes are printed (done and status are set). */
int ft_cmd_next(struct ft_cmd *c, const char **value);
/* Reads all files and --set, the launcher's sections, prints every fault and note to stderr. false: status is 2. */
bool ft_cmd_read_job(struct ft_cmd *c);
/* The same without printing: faults stay in c->faults (check). */
bool ft_cmd_load_job(struct ft_cmd *c);
/* The plan of the job that was read (-n, program behind "--" or fttrain). NULL: faults (added to c->faults) say why. */
const struct ft_plan *ft_cmd_make_plan(struct ft_cmd *c, int n_ranks);
/* `fttrain plan --json` of the job (the caller destroys it); NULL: err says why not. */
struct ft_json *ft_cmd_ask_plan(struct ft_cmd *c, const struct ft_plan *p, bool fit, struct ft_err *err);
/* --fit: lets fttrain change what a rank needs, keeps that as further --set and plans again. NULL: faults say why not. */
const struct ft_plan *ft_cmd_fit(struct ft_cmd *c, const struct ft_plan *p, int n_ranks);
void ft_cmd_add_set(struct ft_cmd *c, const char *assignment);
/* "-n" as a number of ranks; 0 and done when it is none. */
int ft_cmd_ranks(struct ft_cmd *c, const char *value);
/* Prints an error (interface: "How an error reads"), sets done and status (2 for usage and config, else 125). */
void ft_cmd_fail(struct ft_cmd *c, const struct ft_err *err);
/* Text for stderr: "ftlaunch: error:" and the like in colour when --color, NO_COLOR and the terminal allow it; control bytes as
 * \xHH. */
void ft_cmd_say(const struct ft_cmd *c, const char *text);
bool ft_cmd_color(const struct ft_cmd *c);  /* is stderr painted? */
void ft_cmd_print_faults(struct ft_cmd *c); /* sorted; notes and warnings not with -q */
/* Main of a command that prints one text, chosen by one word of its usage; write: false when there is no such text. */
int ft_cmd_print_page(const struct ft_command *self, int argc, char **argv,
                      bool (*write)(struct ft_cmd *c, const char *word, struct ft_buf *out));
/* Frees everything, flushes stdout (125 when that fails); returns the status. */
int ft_cmd_end(struct ft_cmd *c);

/* The fttrain beside this program, else the first on PATH, else NULL. */
const char *ft_find_fttrain(struct ft_arena *arena);

#endif
