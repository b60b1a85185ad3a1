"""Inputs for the studies' programs: made here, the same bytes every time."""

import random
from collections.abc import Callable
from pathlib import Path

_SEED = 1
_WORDS = 20_000
_TEXT_LINES = 60_000
_ROWS = 20_000
_FUNCTIONS = 120


def make_inputs(directory: Path) -> dict[str, Path]:
    """Writes every input; returns their paths by the names that commands use."""
    makers: dict[str, Callable[[random.Random], str]] = {
        "text": _text,
        "sql": _sql,
        "c": _c_source,
        "rust": _rust_source,
        "python": _python_source,
    }
    suffixes = {"text": "txt", "sql": "sql", "c": "c", "rust": "rs", "python": "py"}
    paths = {}
    for name, make in makers.items():
        path = directory / f"input.{suffixes[name]}"
        path.write_text(make(random.Random(_SEED)), encoding="ascii")
        paths[name] = path
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
    """Functions over collections, generic enough to keep the compiler busy."""
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
