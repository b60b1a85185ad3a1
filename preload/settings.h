/* SPDX-License-Identifier: Apache-2.0
 *
 * The library's settings from the environment; docs/apply.md describes every variable.
 */
#ifndef OCTAVO_PRELOAD_SETTINGS_H
#define OCTAVO_PRELOAD_SETTINGS_H

enum kind { HEAP, ANONYMOUS, SHARED, OTHER };

struct rule {
    enum kind kind;
    int wanted;
    unsigned long least_bytes, most_bytes; /* size of the mapping, both inclusive */
};

enum { MOST_RULES = 64 };

struct settings {
    struct rule rules[MOST_RULES]; /* the first that fits a mapping decides */
    int rule_count;
    unsigned long fill_percent;    /* of a 2 MiB range, in use by this process alone */
    unsigned long budget_percent;  /* of one processor */
    unsigned long longest_seconds; /* between two checks */
    int children;
    const char *log;
};

/* Reads OCTAVO_APPLY_*. A value that cannot be read leaves the default. */
void read_settings(struct settings *settings);

/* Takes this library out of LD_PRELOAD, so that programs executed from here do not load it. */
void hide_from_children(void);

/* Whether the first rule that fits a mapping of this kind and size wants it. */
int wants(const struct settings *settings, enum kind kind, unsigned long bytes);

#endif
