/* SPDX-License-Identifier: Apache-2.0 */
#include "settings.h"

extern char **environ;
extern int unsetenv(const char *name);

static const char *value_of(const char *name)
{
    for (char **entry = environ; entry != 0 && *entry != 0; entry++) {
        const char *at = *entry, *wanted = name;
        while (*wanted != 0 && *at == *wanted) {
            at++;
            wanted++;
        }
        if (*wanted == 0 && *at == '=')
            return at + 1;
    }
    return 0;
}

/* Reads digits from *at and moves it past them; `otherwise` where there are none. */
static unsigned long number(const char **at, unsigned long otherwise)
{
    unsigned long value = 0;
    const char *start = *at;
    while (**at >= '0' && **at <= '9')
        value = 10 * value + (unsigned long)(*(*at)++ - '0');
    return *at == start ? otherwise : value;
}

static unsigned long number_of(const char *name, unsigned long least, unsigned long most,
                               unsigned long otherwise)
{
    const char *at = value_of(name);
    if (at == 0)
        return otherwise;
    unsigned long value = number(&at, otherwise);
    return *at == 0 && value >= least && value <= most ? value : otherwise;
}

/* Moves *at past `word` if the text begins with it. */
static int skip(const char **at, const char *word)
{
    const char *here = *at;
    while (*word != 0) {
        if (*here++ != *word++)
            return 0;
    }
    *at = here;
    return 1;
}

static int read_kind(const char **at, enum kind *kind)
{
    if (skip(at, "heap"))
        *kind = HEAP;
    else if (skip(at, "anonymous"))
        *kind = ANONYMOUS;
    else if (skip(at, "shared"))
        *kind = SHARED;
    else
        return 0;
    return 1;
}

/* Reads `[!]KIND[=LEAST-[MOST]]`. */
static int read_rule(const char **at, struct rule *rule)
{
    rule->wanted = !skip(at, "!");
    rule->least_bytes = 0;
    rule->most_bytes = ~0UL;
    if (!read_kind(at, &rule->kind))
        return 0;
    if (skip(at, "=")) {
        rule->least_bytes = number(at, 0);
        if (!skip(at, "-"))
            return 0;
        rule->most_bytes = number(at, ~0UL);
    }
    return **at == ',' || **at == 0;
}

static void read_rules(struct settings *settings, const char *text)
{
    settings->rule_count = 0;
    while (settings->rule_count < MOST_RULES) {
        if (!read_rule(&text, &settings->rules[settings->rule_count]))
            return;
        settings->rule_count++;
        if (*text++ == 0)
            return;
    }
}

void read_settings(struct settings *settings)
{
    const char *regions = value_of("OCTAVO_APPLY_REGIONS");
    read_rules(settings, regions != 0 ? regions : "heap,anonymous");
    settings->fill_percent = number_of("OCTAVO_APPLY_FILL", 1, 100, 50);
    settings->budget_percent = number_of("OCTAVO_APPLY_BUDGET", 1, 100, 10);
    settings->longest_seconds = number_of("OCTAVO_APPLY_INTERVAL", 1, 3600, 10);
    settings->children = number_of("OCTAVO_APPLY_CHILDREN", 0, 1, 1) != 0;
    settings->log = value_of("OCTAVO_APPLY_LOG");
}

void hide_from_children(void)
{
    char *list = (char *)value_of("LD_PRELOAD");
    if (list == 0)
        return;
    char *rest = list; /* octavo puts this library first */
    while (*rest != 0 && *rest != ':' && *rest != ' ')
        rest++;
    if (*rest == 0) {
        unsetenv("LD_PRELOAD");
        return;
    }
    rest++;
    while ((*list++ = *rest++) != 0)
        ;
}

int wants(const struct settings *settings, enum kind kind, unsigned long bytes)
{
    for (int i = 0; i < settings->rule_count; i++) {
        const struct rule *rule = &settings->rules[i];
        if (rule->kind == kind && bytes >= rule->least_bytes && bytes <= rule->most_bytes)
            return rule->wanted;
    }
    return 0;
}
