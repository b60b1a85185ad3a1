/* SPDX-License-Identifier: Apache-2.0
 *
 * One pass over the mappings of this process, which makes 2 MiB pages of memory in use.
 */
#ifndef OCTAVO_PRELOAD_COLLAPSE_H
#define OCTAVO_PRELOAD_COLLAPSE_H

#include "budget.h"
#include "settings.h"

/* Files of this process, open in the thread that makes passes. */
struct files {
    int maps, pagemap;
};

struct outcome {
    unsigned long made;    /* pages of 2 MiB made by this pass */
    unsigned long refused; /* ranges that the kernel did not collapse */
    long error;            /* of the last refusal */
    int is_unfinished;     /* the budget did not last */
};

/* Makes a pass, or goes on with the one that the budget ended. */
struct outcome make_pass(const struct settings *settings, const struct files *files,
                         struct budget *budget);

/* Begins the next pass at the first mapping. */
void restart_pass(void);

#endif
