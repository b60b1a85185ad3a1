/* SPDX-License-Identifier: Apache-2.0
 *
 * A library for LD_PRELOAD that gives the memory of a program pages of 2 MiB while it runs.
 *
 * The program must not notice. So the thread is one of the kernel's, not of the C library's: malloc
 * and stdio go on as in a program of one thread, the last thread to return still ends the process,
 * and a fork starts it again without a lock or an allocation. It blocks all signals, and it has a
 * table of descriptors of its own, empty at first: it can neither keep a pipe open nor lose a file
 * to a program that closes all descriptors it finds.
 */
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/errno.h>
#include <linux/sched.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

#include "budget.h"
#include "collapse.h"
#include "privileges.h"
#include "settings.h"
#include "syscalls.h"

extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                             void *library) __attribute__((weak)); /* glibc */
extern int pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void))
    __attribute__((weak)); /* musl */

enum { STACK_BYTES = 64 << 10, SIGNAL_SET_BYTES = 8, LINE_BYTES = 256 };
static const long SHORTEST_NS = 100000000;
static const long SECOND_NS = 1000000000;

static struct settings settings;
static char stack[STACK_BYTES] __attribute__((aligned(64)));

static long open_file(const char *name, int flags)
{
    return kernel(SYS_open, (unsigned long)name, (unsigned long)(flags | O_CLOEXEC), 0644, 0, 0);
}

static void sleep_for(long ns)
{
    struct timespec time = {ns / SECOND_NS, ns % SECOND_NS};
    kernel(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, (unsigned long)&time, 0, 0);
}

static unsigned long page_faults(void)
{
    struct rusage usage;
    if (kernel(SYS_getrusage, RUSAGE_SELF, (unsigned long)&usage, 0, 0, 0) < 0)
        return 0;
    return (unsigned long)usage.ru_minflt;
}

/* --- the log ----------------------------------------------------------------------------------- */

struct line {
    char text[LINE_BYTES];
    unsigned length;
};

static void add_text(struct line *line, const char *text)
{
    while (*text != 0 && line->length < LINE_BYTES)
        line->text[line->length++] = *text++;
}

static void add_number(struct line *line, unsigned long number)
{
    char digits[24];
    unsigned at = sizeof digits - 1;
    digits[at] = 0;
    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number != 0);
    add_text(line, &digits[at]);
}

/* Why the kernel refused: the errors of MADV_COLLAPSE that docs/apply.md lists. */
static void add_reason(struct line *line, long error)
{
    if (error == -ENOMEM) {
        add_text(line, "no free 2 MiB of memory in one piece: "
                       "`echo 1 > /proc/sys/vm/compact_memory` as root may make some");
    } else if (error == -EBUSY) {
        add_text(line, "the limit of the memory cgroup is reached");
    } else if (error == -EINVAL) {
        add_text(line, "the kernel makes no huge page of such memory");
    } else if (error == -EAGAIN) {
        add_text(line, "the kernel is using pages of the range");
    } else {
        add_text(line, "error ");
        add_number(line, (unsigned long)-error);
    }
}

static void log_pass(long log, long pid, const struct outcome *outcome)
{
    struct line line = {.length = 0};
    if (log < 0 || (outcome->made == 0 && outcome->refused == 0))
        return;
    add_text(&line, "pid ");
    add_number(&line, (unsigned long)pid);
    add_text(&line, ": ");
    add_number(&line, outcome->made);
    add_text(&line, " pages of 2 MiB made, ");
    add_number(&line, outcome->refused);
    add_text(&line, " refused");
    if (outcome->refused != 0) {
        add_text(&line, " (");
        add_reason(&line, outcome->error);
        add_text(&line, ")");
    }
    add_text(&line, "\n");
    kernel(SYS_write, (unsigned long)log, (unsigned long)line.text, line.length, 0, 0);
}

/* --- the thread -------------------------------------------------------------------------------- */

static void run_passes(const struct files *files, long log, long pid)
{
    const long longest_ns = (long)settings.longest_seconds * SECOND_NS;
    unsigned long faults_seen = 0;
    long interval_ns = SHORTEST_NS;
    int is_unfinished = 0;
    struct budget budget;
    open_budget(&budget, settings.budget_percent);
    for (;;) {
        sleep_for(interval_ns);
        unsigned long faults = page_faults();
        long longer_ns = 2 * interval_ns < longest_ns ? 2 * interval_ns : longest_ns;
        if (!is_unfinished && faults == faults_seen) {
            interval_ns = longer_ns;
            continue;
        }
        refill(&budget);
        long missing_ns = time_to_credit_ns(&budget);
        if (missing_ns > 0) {
            interval_ns = missing_ns;
            continue;
        }
        struct outcome outcome = make_pass(&settings, files, &budget);
        is_unfinished = outcome.is_unfinished;
        /* A pass that advises a mapping may have joined it with its neighbour, and the range that
         * lies in both is for the next pass. */
        if (!is_unfinished && outcome.made == 0)
            faults_seen = faults;
        log_pass(log, pid, &outcome);
        /* A program that keeps mapping and unmapping little memory has page faults, but nothing to
         * collapse. */
        interval_ns = outcome.made != 0 ? SHORTEST_NS : longer_ns;
    }
}

static void run(void)
{
    struct files files;
    long log = -1;
    long pid = kernel(SYS_getpid, 0, 0, 0, 0, 0);
    kernel(SYS_prctl, PR_SET_NAME, (unsigned long)"octavo-apply", 0, 0, 0);
    if (kernel(SYS_close_range, 0, ~0U, CLOSE_RANGE_UNSHARE, 0, 0) < 0)
        return;
    int is_privileged = drop_capabilities();
    if (settings.log != 0)
        log = open_file(settings.log, O_WRONLY | O_APPEND | O_CREAT);
    files.maps = (int)open_file("/proc/thread-self/maps", O_RDONLY);
    files.pagemap = (int)open_file("/proc/thread-self/pagemap", O_RDONLY);
    if (files.maps < 0 || files.pagemap < 0 || (is_privileged && !confine()))
        return;
    restart_pass();
    run_passes(&files, log, pid);
}

static void start(void)
{
    const unsigned long flags =
        CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    unsigned long all = ~0UL, before = 0;
    kernel(SYS_rt_sigprocmask, 2 /* SIG_SETMASK */, (unsigned long)&all, (unsigned long)&before,
           SIGNAL_SET_BYTES, 0);
    start_task(flags, stack + STACK_BYTES, run);
    kernel(SYS_rt_sigprocmask, 2, (unsigned long)&before, 0, SIGNAL_SET_BYTES, 0);
}

static void __attribute__((constructor)) load(void)
{
    /* The loader takes no library from the environment into a set-user-ID program, but an
     * administrator may have named this one in /etc/ld.so.preload. */
    if (getauxval(AT_SECURE) != 0)
        return;
    read_settings(&settings);
    if (!settings.children)
        hide_from_children();
    else if (__register_atfork != 0)
        __register_atfork(0, 0, start, 0);
    else if (pthread_atfork != 0)
        pthread_atfork(0, 0, start);
    start();
}
