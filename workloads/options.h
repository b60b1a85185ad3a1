// The command lines of the measured workloads: options with values, --help, and one sentence for
// each error.
#ifndef WORKLOADS_OPTIONS_H
#define WORKLOADS_OPTIONS_H

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind {
    SIZE,         // bytes: 65536, 64KiB, 64K
    SIZE_POWER,   // bytes, a power of two
    COUNT,        // 1000000, 1000k, 1M
    THOUSANDTHS,  // 0.99 is kept as 990
    CHOICE,       // one of `choices`, kept as its place among them
};

struct option {
    const char *name;
    enum kind kind;
    uint64_t *value;       // holds the default until the option is given
    uint64_t least, most;  // of numbers, in the unit in which they are kept
    const char *choices;   // of a CHOICE, the default first: "default|always|never"
    const char *meaning;
};

struct program {
    const char *name, *does;
    const char *examples;  // their arguments, one line each
    const struct option *options;
    size_t count;
};

enum { HUGE_DEFAULT, HUGE_ALWAYS, HUGE_NEVER };
enum { CHECK_YES, CHECK_NO };

// The unit of large limits.
static const uint64_t G = 1000000000;

static const struct program *program;
static uint64_t seed = 1, huge = HUGE_DEFAULT, check = CHECK_YES;
// The hidden option --break-result=N spoils the result before the check, which must then fail. Each
// program defines its own values of N.
static unsigned long broken;

static const struct option common_options[] = {
    {"huge", CHOICE, &huge, 0, 0, "default|always|never",
     "whether its big arrays ask for huge pages (madvise), forbid them, or say nothing"},
    {"seed", COUNT, &seed, 0, UINT64_MAX, NULL, "of the random numbers"},
    {"check", CHOICE, &check, 0, 0, "yes|no", "whether the result is checked at the end"},
};
enum { COMMON_OPTIONS = sizeof common_options / sizeof *common_options };

static inline const struct option *option_at(size_t index) {
    return index < program->count ? &program->options[index]
                                  : &common_options[index - program->count];
}

static inline size_t option_count(void) {
    return program->count + COMMON_OPTIONS;
}

// A number as it would be given.
static inline const char *number_text(enum kind kind, uint64_t number) {
    static char texts[4][32];
    static unsigned turn;
    char *text = texts[turn++ % 4];
    static const char *const units[2][5] = {{"", "k", "M", "G", "T"},
                                            {"", "KiB", "MiB", "GiB", "TiB"}};
    if (kind == THOUSANDTHS) {
        snprintf(text, sizeof texts[0], "%" PRIu64 ".%03" PRIu64, number / 1000, number % 1000);
        return text;
    }
    int is_size = kind != COUNT;
    unsigned by = is_size ? 1024 : 1000, unit = 0;
    for (; unit < 4 && number && number % by == 0; unit++) number /= by;
    snprintf(text, sizeof texts[0], "%" PRIu64 "%s", number, units[is_size][unit]);
    return text;
}

static inline void print_allowed(FILE *to, const struct option *option) {
    static const char *const what[] = {
        [SIZE] = "sizes", [SIZE_POWER] = "powers of two", [COUNT] = "numbers",
        [THOUSANDTHS] = "numbers"};
    if (option->kind == CHOICE) {
        for (const char *c = option->choices; *c; c++)
            *c == '|' ? fputs(strchr(c + 1, '|') ? ", " : " and ", to) : fputc(*c, to);
        return;
    }
    fprintf(to, "%s from %s to %s, such as %s", what[option->kind],
            number_text(option->kind, option->least), number_text(option->kind, option->most),
            number_text(option->kind, *option->value));
}

// Ends the program with one sentence about what it was given.
#define REFUSE(...) (fprintf(stderr, "%s: ", program->name), fprintf(stderr, __VA_ARGS__), \
                     fputc('\n', stderr), exit(2))

static inline int scaled(uint64_t *number, uint64_t by) {
    return !__builtin_mul_overflow(*number, by, number);
}

// Reads `text` as a number of this kind; returns 0 if it is none.
static inline int read_number(enum kind kind, const char *text, uint64_t *number) {
    if (!isdigit((unsigned char)*text)) return 0;
    char *rest;
    errno = 0;
    *number = strtoull(text, &rest, 10);
    if (errno) return 0;
    if (kind == THOUSANDTHS) {
        if (!scaled(number, 1000)) return 0;
        if (*rest == '.')
            for (unsigned place = 100; isdigit((unsigned char)*++rest); place /= 10) {
                if (place == 0) return 0;
                *number += place * (unsigned)(*rest - '0');
            }
        return *rest == 0;
    }
    static const char letters[] = "kmgt";
    int is_size = kind == SIZE || kind == SIZE_POWER;
    const char *letter = *rest ? strchr(letters, tolower((unsigned char)*rest)) : NULL;
    if (letter) {
        for (long unit = letter - letters; unit >= 0; unit--)
            if (!scaled(number, is_size ? 1024 : 1000)) return 0;
        rest++;
    }
    if (is_size && letter && tolower((unsigned char)*rest) == 'i') {
        if (tolower((unsigned char)rest[1]) != 'b') return 0;
        rest++;
    }
    if (is_size && tolower((unsigned char)*rest) == 'b') rest++;
    return *rest == 0;
}

static inline int read_choice(const char *choices, const char *text, uint64_t *number) {
    size_t length = strcspn(text, "|");
    for (*number = 0; length && !text[length]; ++*number) {
        if (!strncmp(choices, text, length) && strchr("|", choices[length])) return 1;
        choices = strchr(choices, '|');
        if (!choices++) break;
    }
    return 0;
}

static inline void read_value(const struct option *option, const char *text) {
    uint64_t number;
    int right = option->kind == CHOICE
                    ? read_choice(option->choices, text, &number)
                    : read_number(option->kind, text, &number) && number >= option->least &&
                          number <= option->most &&
                          (option->kind != SIZE_POWER || (number & (number - 1)) == 0);
    if (!right) {
        fprintf(stderr, "%s: --%s does not take `%s`: allowed are ", program->name, option->name,
                text);
        print_allowed(stderr, option);
        fputs(".\n", stderr);
        exit(2);
    }
    *option->value = number;
}

static inline void print_help(void) {
    printf("%s: %s\n\n  %s [OPTIONS]\n\n", program->name, program->does, program->name);
    for (size_t i = 0; i < option_count(); i++) {
        const struct option *option = option_at(i);
        printf("  --%s: %s\n      ", option->name, option->meaning);
        print_allowed(stdout, option);
        if (option->kind == CHOICE)
            printf("; default %.*s\n", (int)strcspn(option->choices, "|"), option->choices);
        else
            puts(", the default");
    }
    puts("\nAn option is given as --name VALUE or --name=VALUE. Sizes have K, M, G or T (powers of\n"
         "1024), counts k, M, G or T (powers of 1000).\n\nexamples:");
    for (const char *line = program->examples; *line;) {
        size_t length = strcspn(line, "\n");
        printf("  %s %.*s\n", program->name, (int)length, line);
        line += length + (line[length] == '\n');
    }
    puts("\nexit status: 0 the check passed, 1 it failed or memory ran out, 2 a bad option");
}

// Reads the command line; ends the program after --help or an error.
static inline void read_options(const struct program *this, int argc, char **argv) {
    program = this;
    for (int a = 1; a < argc; a++) {
        const char *word = argv[a], *equals = strchr(word, '=');
        size_t length = equals ? (size_t)(equals - word) : strlen(word);
        if (!strcmp(word, "--help") || !strcmp(word, "-h")) {
            print_help();
            exit(0);
        }
        if (!strncmp(word, "--break-result=", 15)) {
            broken = strtoul(word + 15, NULL, 10);
            continue;
        }
        const struct option *found = NULL;
        for (size_t i = 0; i < option_count() && !found; i++) {
            const char *name = option_at(i)->name;
            if (length == strlen(name) + 2 && !strncmp(word, "--", 2) &&
                !strncmp(word + 2, name, length - 2))
                found = option_at(i);
        }
        if (!found) {
            fprintf(stderr, "%s: `%s` is not an option: allowed are", program->name, word);
            for (size_t i = 0; i < option_count(); i++)
                fprintf(stderr, " --%s,", option_at(i)->name);
            fputs(" --help.\n", stderr);
            exit(2);
        }
        if (!equals && a + 1 == argc) {
            fprintf(stderr, "%s: --%s lacks its value: allowed are ", program->name, found->name);
            print_allowed(stderr, found);
            fputs(".\n", stderr);
            exit(2);
        }
        read_value(found, equals ? equals + 1 : argv[++a]);
    }
}

// The first statement of a main function: names the program, its options and its examples.
#define READ_OPTIONS(name_, does_, examples_)                                            \
    do {                                                                                 \
        static const struct program this_program = {                                     \
            name_, does_, examples_, options, sizeof options / sizeof *options};         \
        read_options(&this_program, argc, argv);                                         \
    } while (0)

#endif
