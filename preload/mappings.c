/* SPDX-License-Identifier: Apache-2.0 */
#include "mappings.h"

#include "syscalls.h"

enum {
    KIB = 1 << 10,
    MIB = 1 << 20,
    NAME_BYTES = 16,
    HUGE_PAGE = 2 * MIB,
    GUARD_BYTES = 64 * KIB,         /* no guard below a thread's stack is larger */
    THREAD_STACK_BYTES = 16 * MIB,  /* few thread stacks are larger */
};

static char buffer[4096];
static unsigned filled, taken;
static int maps;
static unsigned long guard_end; /* where the mapping before ended, if it looks like a guard */

int first_mapping(int fd)
{
    maps = fd;
    filled = taken = 0;
    guard_end = 0;
    return kernel(SYS_lseek, (unsigned)fd, 0, 0, 0, 0) == 0;
}

/* The next character, or 0 at the end of the file. */
static char next_character(void)
{
    if (taken == filled) {
        long got = kernel(SYS_read, (unsigned)maps, (unsigned long)buffer, sizeof buffer, 0, 0);
        if (got <= 0)
            return 0;
        filled = (unsigned)got;
        taken = 0;
    }
    return buffer[taken++];
}

/* Reads a hexadecimal number and the character after it. */
static unsigned long hexadecimal(void)
{
    unsigned long value = 0;
    for (;;) {
        char c = next_character();
        if (c >= '0' && c <= '9')
            value = 16 * value + (unsigned long)(c - '0');
        else if (c >= 'a' && c <= 'f')
            value = 16 * value + (unsigned long)(c - 'a' + 10);
        else
            return value;
    }
}

/* Skips a word and the blanks after it. Returns the first character of what follows. */
static char skip_word(char c)
{
    while (c != ' ' && c != '\n' && c != 0)
        c = next_character();
    while (c == ' ')
        c = next_character();
    return c;
}

static int begins_with(const char *name, const char *prefix)
{
    while (*prefix != 0) {
        if (*name++ != *prefix++)
            return 0;
    }
    return 1;
}

static enum kind kind_of(const char *access, const char *name)
{
    if (access[0] != 'r' || access[1] != 'w')
        return OTHER;
    if (access[3] == 's')
        return begins_with(name, "/dev/zero") || begins_with(name, "/dev/shm/") ||
                       begins_with(name, "/memfd:") || begins_with(name, "/SYSV") ||
                       begins_with(name, "[anon_shmem")
                   ? SHARED
                   : OTHER;
    if (begins_with(name, "[heap]"))
        return HEAP;
    return name[0] == 0 || begins_with(name, "[anon:") ? ANONYMOUS : OTHER;
}

int next_mapping(struct mapping *mapping)
{
    char access[4], name[NAME_BYTES] = {0};
    mapping->start = hexadecimal();
    mapping->end = hexadecimal();
    if (mapping->end == 0)
        return 0;
    for (int i = 0; i < 4; i++)
        access[i] = next_character();
    next_character();
    unsigned long offset = hexadecimal();
    char c = next_character();
    for (int word = 0; word < 2; word++) /* device, inode */
        c = skip_word(c);
    for (unsigned i = 0; c != '\n' && c != 0; c = next_character()) {
        if (i < sizeof name - 1)
            name[i++] = c;
    }
    unsigned long bytes = mapping->end - mapping->start;
    mapping->kind = kind_of(access, name);
    if (mapping->kind == ANONYMOUS && mapping->start == guard_end && bytes <= THREAD_STACK_BYTES)
        mapping->kind = OTHER; /* the stack of a thread */
    if (mapping->kind == SHARED && (mapping->start - offset) % HUGE_PAGE != 0)
        mapping->kind = OTHER; /* the file's huge pages lie across the mapping's */
    int is_guard = access[0] == '-' && access[1] == '-' && bytes <= GUARD_BYTES;
    guard_end = is_guard ? mapping->end : 0;
    return 1;
}
