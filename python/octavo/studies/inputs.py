"""Inputs for the studies' programs, generated from a fixed seed: the same bytes every time."""

import random
from collections.abc import Callable
from pathlib import Path

_SEED = 1
_WORDS = 20_000
_TEXT_LINES = 60_000
_ROWS = 20_000
_FUNCTIONS = 120
_VARIED_FUNCTIONS = 40
_OBJECTS = 4_000
_IMAGE_DOTS = (1024, 768)


def make_inputs(directory: Path) -> dict[str, Path]:
    """Writes every input; returns their paths by the names that commands use."""
    makers: dict[str, tuple[str, Callable[[random.Random], str]]] = {
        "text": ("input.txt", _text),
        "sql": ("input.sql", _sql),
        "c": ("input.c", _c_source),
        "rust": ("input.rs", _rust_source),
        "python": ("input.py", _python_source),
        "functions": ("functions.c", _functions),
        "objects": ("objects.sql", _objects),
        "circuit": ("circuit.v", _circuit),
        "image": ("image.ppm", _image),
    }
    for file, make in makers.values():
        (directory / file).write_text(make(random.Random(_SEED)), encoding="latin-1")
    paths = {name: directory / file for name, (file, _) in makers.items()}
    return {**paths, "scratch": directory / "scratch"}


def _vocabulary(rng: random.Random) -> list[str]:
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    return ["".join(rng.choices(letters, k=rng.randint(2, 10))) for _ in range(_WORDS)]


def _text(rng: random.Random) -> str:
    """Lines of words; common words are common, as in prose."""
    words = _vocabulary(rng)
    ranks = [min(int(rng.paretovariate(0.7)), _WORDS - 1) for _ in range(10 * _TEXT_LINES)]
    lines = (ranks[i : i + 10] for i in range(0, len(ranks), 10))
    return "".join(" ".join(words[rank] for rank in line) + "\n" for line in lines)


def _sql(rng: random.Random) -> str:
    """A table, an index, a join and a sort."""
    rows = ",\n".join(
        f"({key}, {rng.randrange(1000)}, '{rng.getrandbits(96):x}')" for key in range(_ROWS)
    )
    return (
        "CREATE TABLE item (id INTEGER PRIMARY KEY, kind INTEGER, name TEXT);\n"
        f"BEGIN;\nINSERT INTO item VALUES {rows};\nCOMMIT;\n"
        "CREATE INDEX by_kind ON item (kind);\nCREATE INDEX by_name ON item (name);\n"
        "SELECT count(*), max(length(b.name)) FROM item a JOIN item b ON a.kind = b.kind;\n"
        "SELECT name FROM item ORDER BY substr(name, 3) LIMIT 5;\n"
    )


def _c_source(rng: random.Random) -> str:
    """Functions with loops, branches and calls to one another."""
    parts = ["static long table[4096];\nlong f0(long x) { return x + table[x & 4095]; }\n"]
    for number in range(1, _FUNCTIONS):
        callee, factor, limit = rng.randrange(number), rng.randrange(3, 99), rng.randrange(4, 40)
        parts.append(
            f"long f{number}(long x) {{\n  long sum = x;\n"
            f"  for (long i = 0; i < {limit}; i++) {{\n"
            f"    if ((sum ^ i) % {factor} == 0) sum += f{callee}(i);\n"
            f"    else table[(sum + i) & 4095] += sum * {factor};\n  }}\n  return sum;\n}}\n"
        )
    return "".join(parts)


def _rust_source(rng: random.Random) -> str:
    """Functions over generic collections, which the compiler has to instantiate."""
    parts = ["use std::collections::BTreeMap;\n"]
    for number in range(_FUNCTIONS // 4):
        factor, limit = rng.randrange(3, 99), rng.randrange(4, 40)
        parts.append(
            f"pub fn f{number}(words: &[&str]) -> BTreeMap<String, u64> {{\n"
            "    let mut counts = BTreeMap::new();\n"
            f"    for word in words.iter().filter(|word| word.len() < {limit}) {{\n"
            f"        *counts.entry(word.to_string()).or_insert(0) += {factor};\n"
            "    }\n    counts\n}\n"
        )
    return "".join(parts)


def _python_source(_: random.Random) -> str:
    """Objects, dictionaries and strings, as a script uses them."""
    return (
        "import collections, json, re\n"
        "path = __file__.replace('input.py', 'input.txt')\n"
        f"lines = open(path).read().splitlines()[:{_TEXT_LINES // 4}]\n"
        "counts = collections.Counter(word for line in lines for word in line.split())\n"
        "index = {}\n"
        "for number, line in enumerate(lines):\n"
        "    for word in re.findall(r'[aeiou]\\w+', line):\n"
        "        index.setdefault(word, []).append(number)\n"
        "text = json.dumps(index, sort_keys=True)\n"
        "print(len(json.loads(text)), counts.most_common(1))\n"
    )


_KINDS = (
    "long f{n}(long x) {{\n  long sum = x, i;\n  for (i = 0; i < {a}; i++) {{\n"
    "    if ((sum ^ i) % {b} == 0) sum += f{m}(i);\n"
    "    else table[(sum + i) & 4095] += sum * {b};\n  }}\n  return sum;\n}}\n",
    "long f{n}(long x) {{\n  switch (x % 9) {{\n  case 0: return x * {a};\n"
    "  case 1: return x - {b};\n"
    "  case 2: return f{m}(x / 2);\n  case 3: return table[x & 63] ^ {a};\n"
    "  case 5: return x << {c};\n  case 7: return ~x;\n  default: return x + {b};\n  }}\n}}\n",
    "struct item{n} {{ struct item{n} *next; int key, weight[{c}]; }};\n"
    "long f{n}(long x) {{\n  struct item{n} items[{c}], *at = items;\n  long i, found = 0;\n"
    "  for (i = 0; i < {c}; i++) {{ items[i].next = i ? &items[i - 1] : 0; items[i].key = x * i; "
    "items[i].weight[i] = i ^ x; }}\n"
    "  for (at = &items[{c} - 1]; at; at = at->next)\n"
    "    if (at->key > {a} || at->weight[0] < {b}) found += at->key - f{m}(found);\n"
    "  return found;\n}}\n",
    "long f{n}(long x) {{\n  char text[{a}], *at = text;\n  int digits = 0;\n"
    "  while (x > 0 && at < text + {a} - 1) {{ *at++ = '0' + x % 10; x /= 10; digits++; }}\n"
    "  *at = 0;\n  while (at > text && *--at != '{c}') if (*at >= 'a' || *at < '0') digits--;\n"
    "  return digits ? f{m}(digits) : {b};\n}}\n",
    "double g{n}(double x, double y) {{ return x > y ? x * {a}.5 - y : y / (x + {b}.25); }}\n"
    "long f{n}(long x) {{\n  double sum = x;\n  int i, j;\n  for (i = 0; i < {c}; i++)\n"
    "    for (j = i; j < {a}; j++) sum += g{n}(i, j) * (i == j ? 0.5 : 1.0 / (j - i));\n"
    "  return sum > 1e6 ? f{m}((long)sum) : (long)sum;\n}}\n",
)
"""Templates of functions in C89, the input of a compiler of that time."""


def _functions(rng: random.Random) -> str:
    """A source file of functions of several kinds, each of which calls one before it."""
    parts = ["static long table[4096];\nlong f0(long x) { return x + table[x & 4095]; }\n"]
    for n in range(1, _VARIED_FUNCTIONS):
        numbers = {"a": rng.randrange(12, 99), "b": rng.randrange(3, 99), "c": rng.randrange(3, 9)}
        kind = rng.choice(_KINDS)
        parts.append(kind.format(n=n, m=rng.randrange(n), **numbers))
    return "".join(parts)


def _objects(rng: random.Random) -> str:
    """Three tables of objects that refer to one another: inserts, look-ups by key, changes and
    deletions in turns.
    """
    lines = [
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;",
        "CREATE TABLE part (id INTEGER PRIMARY KEY, kind INTEGER, x INTEGER, y INTEGER, name);",
        "CREATE TABLE person (id INTEGER PRIMARY KEY, name TEXT, city TEXT);",
        "CREATE TABLE link (one INTEGER, other INTEGER, length INTEGER);",
        "CREATE INDEX link_one ON link (one);",
        "CREATE INDEX part_kind ON part (kind);",
        "BEGIN;",
    ]
    for key in range(_OBJECTS):
        kind, x, y = rng.randrange(10), rng.randrange(100_000), rng.randrange(100_000)
        lines.append(f"INSERT INTO part VALUES ({key}, {kind}, {x}, {y}, 'part {x:x}');")
        lines.append(f"INSERT INTO link VALUES ({key}, {rng.randrange(key + 1)}, {x % 97});")
        if key % 4 == 0:
            lines.append(f"INSERT INTO person VALUES ({key}, 'name {y:x}', 'city {x % 50}');")
        if key % 2 == 0:
            lines.append(f"SELECT name, x + y FROM part WHERE id = {rng.randrange(key + 1)};")
        if key % 8 == 0:
            lines.append(
                "SELECT count(*), sum(part.x) FROM link JOIN part ON part.id = link.other "
                f"WHERE link.one BETWEEN {key // 2} AND {key // 2 + 20};"
            )
        if key % 16 == 0:
            lines.append(f"UPDATE part SET x = x + 1 WHERE id = {rng.randrange(key + 1)};")
            lines.append(f"DELETE FROM link WHERE one = {rng.randrange(key + 1)};")
    return "\n".join([*lines, "COMMIT;", ""])


def _circuit(_: random.Random) -> str:
    """A ring of registers around a small memory, in Verilog."""
    return """
module unit(input clock, input [7:0] left, input [7:0] right, output reg [7:0] value);
  wire [7:0] sum = left + right;
  wire [7:0] mixed = {value[6:0], value[7] ^ value[3]} ^ sum;
  initial value = 1;
  always @(posedge clock) value <= #1 mixed;
endmodule

module bench;
  parameter UNITS = 20;
  reg clock;
  reg [31:0] cycles, checksum;
  reg [31:0] memory [0:1023];
  wire [8 * UNITS - 1:0] state;
  genvar i;
  generate for (i = 0; i < UNITS; i = i + 1) begin : ring
    unit one(clock, state[8 * ((i + UNITS - 1) % UNITS) +: 8], state[8 * ((i + 1) % UNITS) +: 8],
             state[8 * i +: 8]);
  end endgenerate
  integer k;
  initial begin
    clock = 0; cycles = 0; checksum = 0;
    for (k = 0; k < 1024; k = k + 1) memory[k] = k;
  end
  always #5 clock = ~clock;
  always @(posedge clock) begin
    cycles <= cycles + 1;
    memory[state[9:0]] <= memory[cycles[9:0]] + state[39:8];
    checksum <= checksum ^ memory[state[25:16]];
    if (cycles == 13500) begin $display("%d", checksum); $finish; end
  end
endmodule
"""


def _image(rng: random.Random) -> str:
    """A picture of slopes, edges and noise, as photographs have them, in the format PPM."""
    width, height = _IMAGE_DOTS
    dots: list[str] = []
    for y in range(height):
        for x in range(width):
            edge = 80 if (x // 97 + y // 61) % 3 == 0 else 0
            light = (x * 255 // width + edge + rng.randrange(16)) & 255
            dots += (chr(light), chr((light + y * 128 // height) & 255), chr(255 - light))
    return f"P6\n{width} {height}\n255\n" + "".join(dots)
