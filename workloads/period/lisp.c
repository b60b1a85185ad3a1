// A small Lisp interpreter that places queens on a board, as `li` of the SPEC suites of 1989 and 1995
// does. Common to both programs: cells of three words in segments of a thousand that malloc
// gives, marked and swept when no cell is free, an evaluator that walks lists, association lists for
// variables, and a working set of some 150 KB that is mostly cells. Written for this purpose.
//
//   lisp [QUEENS [TIMES]]

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEGMENT = 1000, FIRST_SEGMENTS = 10, SEGMENTS = 64, ROOTS = 20000 };
enum type { FREE, CONS, NUMBER, SYMBOL, PRIMITIVE };

// Cells are named by numbers of four bytes, as wide as a pointer of that time.
typedef uint32_t cell;
struct node {
    uint16_t type, marked;
    union { cell car; int32_t number; uint32_t code; };
    union { cell cdr; uint32_t name; };
};

static struct node *segments[SEGMENTS];
static unsigned segment_count;
static cell free_list, symbols, true_, quote_, if_, lambda_, define_;
static cell roots[ROOTS];
static unsigned root_count;
static char names[4096];
static unsigned names_end = 1;
static unsigned long collections;

static inline struct node *at(cell c) { return &segments[c / SEGMENT][c % SEGMENT]; }
static inline cell car(cell c) { return at(c)->car; }
static inline cell cdr(cell c) { return at(c)->cdr; }

static void fail(const char *what) {
    fprintf(stderr, "lisp: %s.\n", what);
    exit(1);
}

static void add_segment(void) {
    if (segment_count == SEGMENTS) fail("too many cells");
    struct node *made = calloc(SEGMENT, sizeof *made);
    if (!made) fail("no memory");
    segments[segment_count] = made;
    for (unsigned i = segment_count ? 0 : 1; i < SEGMENT; i++) {  // cell 0 is nil
        made[i].cdr = free_list;
        free_list = segment_count * SEGMENT + i;
    }
    segment_count++;
}

static void mark(cell c) {
    while (c && !at(c)->marked) {
        struct node *node = at(c);
        node->marked = 1;
        if (node->type != CONS) {
            if (node->type == SYMBOL) mark(node->car);
            return;
        }
        mark(node->car);
        c = node->cdr;
    }
}

// Sweeps all cells; takes another segment while less than a quarter is free.
static void collect(void) {
    mark(symbols);
    for (unsigned i = 0; i < root_count; i++) mark(roots[i]);
    unsigned found = 0;
    free_list = 0;
    for (unsigned s = 0; s < segment_count; s++)
        for (unsigned i = s ? 0 : 1; i < SEGMENT; i++) {
            struct node *node = &segments[s][i];
            if (!node->marked) {
                node->type = FREE;
                node->cdr = free_list;
                free_list = s * SEGMENT + i;
                found++;
            }
            node->marked = 0;
        }
    collections++;
    if (found < segment_count * SEGMENT / 4) add_segment();
}

static cell keep(cell c) {
    if (root_count == ROOTS) fail("too deep");
    return roots[root_count++] = c;
}

static cell new_node(enum type type, uint32_t first, uint32_t second) {
    if (!free_list) {
        unsigned before = root_count;
        if (type == CONS) keep(first), keep(second);
        collect();
        root_count = before;
    }
    cell made = free_list;
    struct node *node = at(made);
    free_list = node->cdr;
    node->type = type;
    node->car = first;
    node->cdr = second;
    return made;
}

static cell cons(cell first, cell rest) { return new_node(CONS, first, rest); }
static cell number(int32_t value) { return new_node(NUMBER, (uint32_t)value, 0); }

// The symbol of a name; its car is its definition.
static cell intern(const char *name, size_t length) {
    for (cell list = symbols; list; list = cdr(list)) {
        const char *known = names + at(car(list))->name;
        if (!strncmp(known, name, length) && !known[length]) return car(list);
    }
    if (names_end + length + 1 > sizeof names) fail("too many names");
    memcpy(names + names_end, name, length);
    cell made = keep(new_node(SYMBOL, 0, names_end));
    names_end += (unsigned)length + 1;
    symbols = cons(made, symbols);
    root_count--;
    return made;
}

static const char *text;

static cell read_form(void) {
    while (*text == ' ' || *text == '\n') text++;
    if (*text == '(') {
        text++;
        unsigned before = root_count;
        for (;;) {
            while (*text == ' ' || *text == '\n') text++;
            if (*text == ')') break;
            keep(read_form());
        }
        text++;
        cell list = 0;
        while (root_count > before) {
            list = cons(roots[root_count - 1], list);
            root_count--;
        }
        return list;
    }
    size_t length = strcspn(text, " \n()");
    const char *word = text;
    text += length;
    if (*word >= '0' && *word <= '9') return number(atoi(word));
    return intern(word, length);
}

static cell eval(cell form, cell environment);

static cell eval_list(cell forms, cell environment) {
    if (!forms) return 0;
    cell first = keep(eval(car(forms), environment));
    cell rest = keep(eval_list(cdr(forms), environment));
    cell made = cons(first, rest);
    root_count -= 2;
    return made;
}

static cell primitive(uint32_t code, cell arguments) {
    cell a = car(arguments), b = cdr(arguments) ? car(cdr(arguments)) : 0;
    switch (code) {
    case 'a': return a ? car(a) : 0;
    case 'd': return a ? cdr(a) : 0;
    case 'c': return cons(a, b);
    case 'n': return a ? 0 : true_;
    case '+': return number(at(a)->number + at(b)->number);
    case '-': return number(at(a)->number - at(b)->number);
    case '=': return at(a)->number == at(b)->number ? true_ : 0;
    default: fail("no such primitive"); return 0;
    }
}

static cell eval(cell form, cell environment) {
    unsigned before = root_count;
    keep(form);
    keep(environment);
    cell value = 0;
    for (;;) {
        if (!form || at(form)->type == NUMBER) { value = form; break; }
        if (at(form)->type == SYMBOL) {
            cell list = environment;
            while (list && car(car(list)) != form) list = cdr(list);
            value = list ? cdr(car(list)) : car(form);
            break;
        }
        cell operator = car(form);
        if (operator == quote_) { value = car(cdr(form)); break; }
        if (operator == if_) {
            cell chosen = cdr(cdr(form));
            if (!eval(car(cdr(form)), environment)) chosen = cdr(chosen);
            form = chosen ? car(chosen) : 0;
            continue;
        }
        if (operator == define_) {
            value = car(cdr(form));
            at(value)->car = car(cdr(cdr(form)));
            break;
        }
        cell function = car(operator);
        cell arguments = keep(eval_list(cdr(form), environment));
        if (function && at(function)->type == PRIMITIVE) {
            value = primitive(at(function)->code, arguments);
            break;
        }
        if (!function || car(function) != lambda_) fail("no such function");
        cell inner = keep(0);
        for (cell parameters = car(cdr(function)); parameters; parameters = cdr(parameters)) {
            cell pair = keep(cons(car(parameters), car(arguments)));
            inner = cons(pair, inner);
            roots[root_count - 2] = inner;
            root_count--;
            arguments = cdr(arguments);
        }
        form = car(cdr(cdr(function)));
        environment = inner;
        // A tail call: this frame's cells are those of the call.
        root_count = before;
        keep(form);
        keep(environment);
    }
    root_count = before;
    return value;
}

static const char program[] =
    "(define abs (lambda (x y) (if (less x y) (- y x) (- x y))))\n"
    "(define less (lambda (x y) (if (= x y) nil (if (= x 0) t (if (= y 0) nil (less (- x 1) (- y 1)))))))\n"
    "(define threat (lambda (i j a b) (if (= i a) t (if (= j b) t (= (abs i a) (abs j b))))))\n"
    "(define conflict (lambda (n m board) (if (null board) nil\n"
    "  (if (threat n m (car (car board)) (cdr (car board))) t (conflict n m (cdr board))))))\n"
    "(define count (lambda (size) (place size 0 0 (quote ()) 0)))\n"
    "(define place (lambda (size n m board found) (if (= m size) found\n"
    "  (place size n (+ m 1) board (if (conflict n m board) found\n"
    "    (if (= (+ n 1) size) (+ found 1)\n"
    "      (place size (+ n 1) 0 (cons (cons n m) board) found)))))))\n";

int main(int argc, char **argv) {
    int queens = argc > 1 ? atoi(argv[1]) : 7, times = argc > 2 ? atoi(argv[2]) : 1;
    for (unsigned i = 0; i < FIRST_SEGMENTS; i++) add_segment();
    intern("nil", 3);
    true_ = intern("t", 1);
    at(true_)->car = true_;
    quote_ = intern("quote", 5);
    if_ = intern("if", 2);
    lambda_ = intern("lambda", 6);
    define_ = intern("define", 6);
    static const char *const primitives[] = {"acar", "dcdr", "ccons", "nnull", "++", "--", "=="};
    for (unsigned i = 0; i < sizeof primitives / sizeof *primitives; i++) {
        cell name = intern(primitives[i] + 1, strlen(primitives[i] + 1));
        at(name)->car = new_node(PRIMITIVE, (uint32_t)*primitives[i], 0);
    }
    // A symbol's definition is marked with it.
    for (text = program; *text; text += strspn(text, " \n")) {
        cell form = keep(read_form());
        eval(form, 0);
    }
    long found = 0;
    for (int i = 0; i < times; i++) {
        char call[32];
        snprintf(call, sizeof call, "(count %d)", queens);
        text = call;
        cell form = keep(read_form());
        found += at(eval(form, 0))->number;
        root_count--;
    }
    printf("lisp: %ld solutions, %u cells, %lu collections\n", found, segment_count * SEGMENT,
           collections);
    return 0;
}
