/* SPDX-License-Identifier: Apache-2.0
 *
 * A bound on processor time: a second to begin with, then a share of the time that passes.
 */
#ifndef OCTAVO_PRELOAD_BUDGET_H
#define OCTAVO_PRELOAD_BUDGET_H

struct budget {
    unsigned long percent; /* of one processor */
    long credit_ns;        /* processor time that may be used now; at most a second */
    long wall_ns, cpu_ns;  /* when the credit was last brought up to date */
};

/* Opens a budget with a second of credit. */
void open_budget(struct budget *budget, unsigned long percent);

/* Adds the credit of the time that has passed. */
void refill(struct budget *budget);

/* Takes off the processor time that this thread has used. Returns whether nothing is left. */
int is_spent(struct budget *budget);

/* The time in ns until there is credit for several pages; 0 if there already is. */
long time_to_credit_ns(const struct budget *budget);

#endif
