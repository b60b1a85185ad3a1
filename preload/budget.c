/* SPDX-License-Identifier: Apache-2.0 */
#include "budget.h"

#include <time.h>

#include "syscalls.h"

static const long SECOND_NS = 1000000000;
static const long ENOUGH_NS = 20000000; /* for several pages of 2 MiB */

static long clock_ns(clockid_t clock)
{
    struct timespec now = {0, 0};
    kernel(SYS_clock_gettime, (unsigned long)clock, (unsigned long)&now, 0, 0, 0);
    return now.tv_sec * SECOND_NS + now.tv_nsec;
}

void open_budget(struct budget *budget, unsigned long percent)
{
    budget->percent = percent;
    budget->credit_ns = SECOND_NS;
    budget->wall_ns = clock_ns(CLOCK_MONOTONIC);
    budget->cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

void refill(struct budget *budget)
{
    long now = clock_ns(CLOCK_MONOTONIC);
    budget->credit_ns += (now - budget->wall_ns) / 100 * (long)budget->percent;
    budget->wall_ns = now;
    if (budget->credit_ns > SECOND_NS)
        budget->credit_ns = SECOND_NS;
}

int is_spent(struct budget *budget)
{
    long now = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    budget->credit_ns -= now - budget->cpu_ns;
    budget->cpu_ns = now;
    return budget->credit_ns <= 0;
}

long time_to_credit_ns(const struct budget *budget)
{
    long missing = ENOUGH_NS - budget->credit_ns;
    return missing <= 0 ? 0 : missing / (long)budget->percent * 100;
}
