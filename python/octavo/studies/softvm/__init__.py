"""The study of software-managed address translation (Jacob and Mudge, HPCA 1997): the measurements.

Programs like those of the paper decide its claims, run to their ends; today's stand beside them.
Each program is recorded once; every simulation reads that trace. Every figure of the paper's tables
is one number here, so that the page and the JSON say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from octavo.analysis.rows import Row, stream_counters
from octavo.analysis.view import main_process
from octavo.studies.claims import load_study
from octavo.studies.programs import (
    NotMeasured,
    Program,
    document,
    load_period,
    load_programs,
    measure_runs,
    measure_traces,
    scope,
    simulate,
    usual_instructions,
)
from octavo.studies.reproduction import Reproduction, Request
from octavo.studies.softvm.sweep import (
    L1_SIZES,
    L2_SIZES,
    LONG_SWEEP_INSTRUCTIONS,
    SHOWN,
    SWEEP_INSTRUCTIONS,
    WARM_UP_INSTRUCTIONS,
    Alone,
    Organisation,
    doubled,
    largest,
    one_pass,
    organisations,
    read_alone,
)

STUDY = "softvm"
MACHINE = "puma"
SOFTVM, SPUR, VIRTUAL, PHYSICAL = "softvm", "spur", "mips_virtual", "mips_physical"
DESIGNS = (SOFTVM, SPUR, VIRTUAL, PHYSICAL)
LEAST_RATE, MOST_RATE = 2_800, 23_800
"""Changes of protection in a billion instructions: the ends of the paper's Table 5."""
RATED = {
    rate: f"{SOFTVM}:softvm.rates.protections_per_billion={rate}"
    for rate in (LEAST_RATE, MOST_RATE)
}
"""Designs with so many changes of protection beside those of the program."""
TRANSFERS = f"{SOFTVM}:softvm.rates.dma_pages_per_billion={MOST_RATE}"
DATA = load_study(STUDY)
PAPER, EVENTS, TABLE_1 = DATA["paper"], DATA["events"], DATA["table_1"]
VARIANTS: dict[str, str] = DATA["variants"]
BY_LINE = VARIANTS["two-tier, by lines"]
MORE_ENTRIES = f"{PHYSICAL}:softvm.tlb.entries=256"
"""Of an experiment: the TLB covers a MiB, as the second level does."""
HALF_DIRTY = 0.5
"""Lines to write back for each miss, as section 5.3 assumes."""
ALL_DESIGNS = (*DESIGNS, *RATED.values(), TRANSFERS, *VARIANTS.values())
USUAL_INSTRUCTIONS = usual_instructions()
"""After how many a program of today is ended at the latest."""
COMPILERS = ("gcc", "cc1", "cc1plus")
"""The programs that stand for the paper's gcc."""
_SWEEPS_AT_ONCE = 40

HANDLER_CYCLES: int = EVENTS["data_misses"][1]
TABLE_4 = [Fraction(per_million, 10**6) for _, _, per_million in EVENTS.values()]
TABLE_5 = {name: Fraction(changes, 1000) for name, changes in PAPER["table_5_per_billion"].items()}


def paper_overheads() -> list[Fraction]:
    """The last column of Table 4: CPI of each row."""
    return [Fraction(cycles * per_million, 10**6) for _, cycles, per_million in EVENTS.values()]


def paper_cycles_per_change() -> int:
    """Section 5.4: 10 * 5 + 246 * 3 + 50 * 40 + 206 * 20."""
    return _change_cycles(PAPER["lines_of_a_page"], PAPER["lines_there"])


def paper_protection_cpi(per_million: Fraction) -> Fraction:
    """The overhead of so many changes of protection in a million instructions."""
    return per_million * paper_cycles_per_change() / 10**6


def _change_cycles(checked: Sequence[int], there: Sequence[int]) -> int:
    """Cycles of a change of protection: lines asked for at each level, and those that are there."""
    costs = zip(checked, there, DATA["cycles"]["absent"], DATA["cycles"]["there"], strict=True)
    return sum((all_ - some) * absent + some * each for all_, some, absent, each in costs)


@dataclass(frozen=True)
class Counted:
    """The counts of one design for one program: cycles of each part, and counters by name."""

    handler_cycles: int
    write_back_cycles: int
    sweep_cycles: int
    counts: dict[str, int]


@dataclass(frozen=True)
class Measurement:
    """The measurements of one program."""

    program: str
    instructions: int
    """Instructions that count, after as many that fill the caches."""
    designs: dict[str, Counted]
    sweep_instructions: int
    sweep: tuple[tuple[Organisation, float], ...]
    """CPI of translation, without write-backs, by organisation (Figure 8)."""
    alone: tuple[Alone, ...] = ()
    """Caches of the sizes of both levels, over the instructions of the sweep."""
    like: str | None = None
    """The program of the paper that it stands for."""
    experiment: dict[str, float] = field(default_factory=dict)
    """CPI of the handlers of designs with one thing changed, by design."""

    def cpi(self, design: str) -> float:
        """Table 3: cycles of handlers for each instruction."""
        return self.designs[design].handler_cycles / self.instructions

    def cpi_with_write_backs(self, design: str) -> float:
        """The same with what translating write-backs costs (section 5.3)."""
        of = self.designs[design]
        return (of.handler_cycles + of.write_back_cycles) / self.instructions

    @property
    def frequencies(self) -> tuple[float, ...]:
        """Of the rows of Table 4, for each instruction."""
        counts = self.designs[SOFTVM].counts
        return tuple(counts[f"softvm.{name}"] / self.instructions for name in EVENTS)

    @property
    def dirty_share(self) -> float | None:
        """Lines that had to be written back, of the misses of programs that brought a line."""
        counts = self.designs[SOFTVM].counts
        nested = counts["softvm.entry_loads"]
        misses = counts["softvm.data_misses"] + counts["softvm.fetch_misses"] - nested
        return counts["softvm.write_back.lines"] / misses if misses else None

    @property
    def half_dirty_cycles(self) -> float:
        """Cycles of translating write-backs, if HALF_DIRTY of the misses cost one."""
        dirty = self.dirty_share
        return self.designs[SOFTVM].write_back_cycles * HALF_DIRTY / dirty if dirty else 0.0

    @property
    def changes_per_million(self) -> float:
        """Pages whose protection was changed in the caches, per million instructions (Table 5)."""
        return self.designs[SOFTVM].counts["softvm.protection.pages"] * 1e6 / self.instructions

    @property
    def cycles_per_change(self) -> float | None:
        """Cycles of such a change; None if there was none."""
        counts = self.designs[SOFTVM].counts
        pages = counts["softvm.protection.pages"]
        if not pages:
            return None
        checked, changed = (
            [counts[f"softvm.protection.l{level}_{what}"] for level in (1, 2)]
            for what in ("checked", "changed")
        )
        return _change_cycles(checked, changed) / pages

    def added_by(self, design: str, what: str) -> tuple[int, float]:
        """The cost of a design with a swept rate over the plain one: how many times
        `what` (`protection`, `dma`) happened, and cycles of all sweeps for each instruction.
        """
        plain, rated = self.designs[SOFTVM], self.designs[design]
        pages = f"softvm.{what}.pages"
        cycles = rated.sweep_cycles - plain.sweep_cycles
        return rated.counts[pages] - plain.counts[pages], cycles / self.instructions

    def table_1(self, side: str) -> dict[str, float]:
        """The rows of Table 1 of a side (`i`, `d`), as shares."""
        counts = self.designs[VIRTUAL].counts
        rows = {name: counts[f"softvm.table1.{side}.{name}"] for name in TABLE_1}
        total = sum(rows.values())
        return {name: value / total if total else 0.0 for name, value in rows.items()}

    def swept(self, l1_bytes: int, l2_bytes: int) -> list[float]:
        """CPI of the organisations with caches of these sizes."""
        sizes = (l1_bytes, l2_bytes)
        return [cpi for of, cpi in self.sweep if (of.l1_bytes, of.l2_bytes) == sizes]

    def least(self) -> tuple[Organisation, float] | None:
        """The organisation with the least overhead."""
        return min(self.sweep, key=lambda of: of[1], default=None)

    def handlers_alone(self, cache_bytes: int, ways: int) -> list[float]:
        """CPI of the handlers' own instructions behind such caches, by the size of lines: each miss
        raises one.
        """
        return [
            of.misses * HANDLER_CYCLES / self.sweep_instructions
            for of in self.alone
            if (of.cache_bytes, of.ways) == (cache_bytes, ways)
        ]

    def record(self) -> dict[str, Any]:
        """Plain data: the counts and the metrics computed from them."""
        return {
            **asdict(self),
            "cpi": {name: self.cpi(name) for name in self.designs},
            "cpi_with_write_backs": {
                name: self.cpi_with_write_backs(name) for name in self.designs
            },
            "frequencies": dict(zip(EVENTS, self.frequencies, strict=True)),
            "dirty_share": self.dirty_share,
            "changes_per_million": self.changes_per_million,
            "cycles_per_change": self.cycles_per_change,
            "table_1": {side: self.table_1(side) for side in ("i", "d")},
        }

    def flat(self) -> dict[str, Any]:
        """One flat record, without the sweep."""
        record: dict[str, Any] = {
            "program": self.program,
            "like": self.like,
            "instructions": self.instructions,
        }
        for name in self.designs:
            record[f"cpi.{name}"] = self.cpi(name)
            record[f"cpi_with_write_backs.{name}"] = self.cpi_with_write_backs(name)
        record.update(zip((f"frequency.{name}" for name in EVENTS), self.frequencies, strict=True))
        record["dirty_share"] = self.dirty_share
        record["changes_per_million"] = self.changes_per_million
        return record


@dataclass(frozen=True)
class Several:
    """Programs that claims speak of together."""

    measurements: tuple[Measurement, ...]

    def averages(self) -> dict[str, float | None]:
        """Weighted by instructions, as the paper's."""
        instructions = sum(m.instructions for m in self.measurements)

        def average(of: Callable[[Measurement], float]) -> float | None:
            total = sum(of(m) * m.instructions for m in self.measurements)
            return total / instructions if instructions else None

        return {
            "average_cpi": average(lambda m: m.cpi(SOFTVM)),
            "average_cpi_with_write_backs": average(lambda m: m.cpi_with_write_backs(SOFTVM)),
        }

    def values(self) -> dict[str, Any]:
        """The numbers that the claims speak of."""
        measured, averages = self.measurements, self.averages()
        instructions = sum(m.instructions for m in measured)

        def cpi(design: str) -> float:
            return sum(m.designs[design].handler_cycles for m in measured) / instructions

        designs = (SOFTVM, VIRTUAL, PHYSICAL)
        return {
            **averages,
            "half_dirty": self._half_dirty(),
            "cpi": {name: cpi(name) for name in designs} if measured else None,
            "compilers_with_larger_l2": self._compilers(l2_bytes=L2_SIZES),
            "compilers_with_larger_l1": self._compilers(l1_bytes=L1_SIZES),
            "factors_of_line_size": [
                max(some) / min(some)
                for m in measured
                for l1_bytes in L1_SIZES
                for l2_bytes in L2_SIZES
                if (some := m.swept(l1_bytes, l2_bytes)) and min(some) > 0
            ],
            "best": self._best(),
            "changes_per_million": [m.changes_per_million for m in measured],
            "rated": self._rated() if instructions else None,
            **self._experiments(),
        }

    def _half_dirty(self) -> dict[str, Any] | None:
        """The cost of translating write-backs: as measured, and for HALF_DIRTY of the misses."""
        without, measured = self.averages().values()
        dirty = [m.dirty_share for m in self.measurements if m.dirty_share is not None]
        if not (without and measured is not None and dirty):
            return None
        added = sum(m.half_dirty_cycles for m in self.measurements)
        growth = added / sum(m.designs[SOFTVM].handler_cycles for m in self.measurements)
        return {
            "cpi": without * (1 + growth),
            "growth": growth,
            "dirty": dirty,
            "measured_cpi": measured,
            "measured_growth": measured / without - 1,
        }

    def _best(self) -> dict[str, Any] | None:
        """The organisation with the least overhead on average, of those that all programs have, and
        the least overhead of each program.
        """
        swept = [m for m in self.measurements if m.sweep]
        if not swept:
            return None
        cpi = [dict(m.sweep) for m in swept]
        total = sum(m.instructions for m in swept)

        def average(organisation: Organisation) -> float:
            return (
                sum(of[organisation] * m.instructions for of, m in zip(cpi, swept, strict=True))
                / total
            )

        shared = [of for of in cpi[0] if all(of in other for other in cpi)]
        organisation = min(shared, key=average, default=None)
        if organisation is None:
            return None
        return {
            "cpi": average(organisation),
            "organisation": organisation.describe(),
            "of_each": [of[1] for m in swept if (of := m.least()) is not None],
        }

    def _experiments(self) -> dict[str, Any]:
        """The numbers of the experiments; None where none was made."""
        tried = [m for m in self.measurements if m.experiment]
        total = sum(m.instructions for m in tried)

        def cpi(design: str) -> float:
            return sum(m.experiment[design] * m.instructions for m in tried) / total

        falls = []
        for m in tried:
            of_sweep = dict(m.sweep)
            some = [(of_sweep[of], m.experiment[twice.design]) for of, twice in _with_twice(m)]
            ratios = [cpi / other for cpi, other in some if other]
            if m.program in COMPILERS and ratios and min(ratios) > 0:
                factor = geometric_mean(ratios)
                falls.append({"program": m.program, "factor": factor, "ratios": ratios})
        return {
            "more_entries": {name: cpi(name) for name in (SOFTVM, PHYSICAL, MORE_ENTRIES)}
            if tried
            else None,
            "compilers_with_doubled_l2": falls,
            "best_cpi_with_doubled_l2": [
                min(m.experiment[twice.design] for _, twice in _with_twice(m)) for m in tried
            ],
        }

    def _compilers(self, **sizes: Sequence[int]) -> list[dict[str, Any]]:
        """For each program that stands for the paper's gcc, how many times the overhead falls from
        the smallest to the largest of some sizes, all else equal.
        """
        ((field, (least, *_, most)),) = sizes.items()
        found = []
        for m in self.measurements:
            all_of = dict(m.sweep)
            pairs = (
                (cpi, all_of.get(replace(of, **{field: most})))
                for of, cpi in all_of.items()
                if getattr(of, field) == least
            )
            ratios = [cpi / other for cpi, other in pairs if other]
            if m.program in COMPILERS and ratios and min(ratios) > 0:
                factor = geometric_mean(ratios)
                found.append({"program": m.program, "factor": factor, "ratios": ratios})
        return found

    def _rated(self) -> dict[str, float | None]:
        """CPI of so many changes of protection as at the ends of Table 5, and cycles of each."""
        instructions = sum(m.instructions for m in self.measurements)
        changes, cycles = 0, []
        for design in RATED.values():
            added = [(m, *m.added_by(design, "protection")) for m in self.measurements]
            changes += sum(pages for _, pages, _ in added)
            cycles.append(sum(each * m.instructions for m, _, each in added))
        least, most = (of / instructions for of in cycles)
        each = sum(cycles) / changes if changes else None
        return {"least": least, "most": most, "cycles_each": each}


@dataclass(frozen=True)
class Changes:
    """The changes of protection of a workload like one of Table 5, with all of its processes."""

    program: str
    like: str
    per_million: float
    """Pages in a million instructions."""


@dataclass(frozen=True)
class Study(Reproduction):
    """All measurements, the least overhead first."""

    folder = STUDY
    measurements: tuple[Measurement, ...] = ()
    today: tuple[Measurement, ...] = ()
    changes: tuple[Changes, ...] = ()
    """Of the workloads like those of Table 5."""

    def values_today(self) -> dict[str, Any]:
        """Without those of the experiments."""
        return {**Several(self.today).values(), "changes": None}

    def values(self) -> dict[str, Any]:
        """The numbers that the claims speak of, of the programs like the paper's, and those of the
        experiments.
        """
        return {**Several(self.measurements).values(), "changes": self._changes()}

    def _changes(self) -> dict[str, Any] | None:
        """Changes of protection, the workloads weighted by the instructions of the paper's."""
        if not self.changes or not self.measurements:
            return None
        of_paper = [Fraction(PAPER["table_5_changes"][of.like]) for of in self.changes]
        per_million = [TABLE_5[of.like] for of in self.changes]
        weights = [changes / of for changes, of in zip(of_paper, per_million, strict=True)]
        total = sum(
            of.per_million * weight for of, weight in zip(self.changes, weights, strict=True)
        )
        return {
            "average": total / sum(weights),
            "of_paper": float(sum(of_paper) / sum(weights)),
            "of_each": [asdict(of) for of in self.changes],
        }

    def averages(self) -> dict[str, float | None]:
        """Of the programs like the paper's."""
        return Several(self.measurements).averages()

    def document(self) -> dict[str, Any]:
        """Plain data for the JSON."""
        return {
            **super().document(),
            **self.averages(),
            "paper": {
                "table_3": PAPER["table_3"],
                "table_4": {
                    "frequencies": [float(of) for of in TABLE_4],
                    "overheads": [float(of) for of in paper_overheads()],
                    "total": float(sum(paper_overheads())),
                },
                "cycles_per_change": paper_cycles_per_change(),
            },
            "programs": [measured.record() for measured in self.measurements],
            "today": [measured.record() for measured in self.today],
        }


def _with_twice(measured: Measurement) -> list[tuple[Organisation, Organisation]]:
    """The organisations of a program with the largest caches, and those of the experiment."""
    swept = largest([of for of, _ in measured.sweep])
    return list(zip(swept, doubled(swept), strict=True))


def run_study(
    request: Request,
    *,
    chosen: Sequence[Program] | None = None,
    sweep: Sequence[Organisation] | None = None,
) -> Study:
    """Runs every program that is installed, or the chosen ones, over all organisations or some.
    Without a limit of its own a program of today ends after USUAL_INSTRUCTIONS.
    """
    is_whole = chosen is None
    if chosen is None:
        chosen = [*load_period(STUDY), *load_programs()]
    programs = [
        one if one.like is not None else replace(one, max_instructions=USUAL_INSTRUCTIONS)
        for one in chosen
    ]
    if request.max_instructions is not None:
        programs = [replace(one, max_instructions=None) for one in programs]
    swept = tuple(organisations()) if sweep is None else tuple(sweep)
    skipped: dict[str, str] = {}

    def measured(program: Program, trace: Path) -> Measurement:
        return _measured(program, trace, swept)

    done = measure_traces(programs, request, measured, skipped)
    done.sort(key=lambda one: one.cpi(SOFTVM))
    like = tuple(one for one in done if one.like is not None)
    today = tuple(one for one in done if one.like is None)
    changes = _changes(request, skipped) if is_whole else []
    return Study(like, skipped, request.max_instructions, today, changes=tuple(changes))


def _changes(request: Request, skipped: dict[str, str]) -> list[Changes]:
    """Of the workloads like those of Table 5."""
    arguments = [*simulate(MACHINE), "--design", SOFTVM]

    def of(program: Program, rows: list[Row]) -> Changes:
        return Changes(program.name, program.like or "", changes_of_all(rows))

    return measure_runs(arguments, load_period(f"{STUDY}_changes"), request, of, skipped)


def changes_of_all(rows: Sequence[Row]) -> float:
    """Changes of protection in a million instructions of all processes together."""
    rows = [row for row in rows if "process" not in row]
    return _counted(rows, SOFTVM).counts["softvm.protection.pages"] * 1e6 / _instructions(rows)


def _measured(program: Program, trace: Path, swept: Sequence[Organisation]) -> Measurement:
    """All passes over one trace. Its first half fills the caches."""
    place = trace.parent
    command = simulate(MACHINE)
    half = scope(half_of(document(["info", str(trace)], place)), None)
    whole = document([*command, *half, "--design", ",".join(ALL_DESIGNS), str(trace)], place)
    if program.like is None:
        extent = ["--max-instructions", str(SWEEP_INSTRUCTIONS)]
    else:
        extent = scope(WARM_UP_INSTRUCTIONS, WARM_UP_INSTRUCTIONS + LONG_SWEEP_INSTRUCTIONS)
    if program.like not in SHOWN and program.name not in COMPILERS:
        swept = largest(swept)
    experiment = {}
    if program.like is not None and (changed := doubled(swept)):
        names = (SOFTVM, PHYSICAL, MORE_ENTRIES, *(of.design for of in changed))
        made = document([*command, *extent, "--design", ",".join(names), str(trace)], place)
        experiment = _handler_cpi(made, names)
    passes = []
    for first in range(0, len(swept), _SWEEPS_AT_ONCE):
        some = swept[first : first + _SWEEPS_AT_ONCE]
        designs = ",".join(of.design for of in some)
        passes.append((some, document([*command, *extent, "--design", designs, str(trace)], place)))
    caches = document(one_pass(str(trace)), place) if program.like is None else None
    rows = [row for result in (whole, *(of for _, of in passes)) for row in result["rows"]]
    if any(row["counter"] == "out_of_memory" and row["value"] for row in rows):
        raise NotMeasured("the simulated memory ran out")
    measured = measure(program.name, whole, passes, caches)
    return replace(measured, like=program.like, experiment=experiment)


def _handler_cpi(result: dict[str, Any], designs: Sequence[str]) -> dict[str, float]:
    """CPI of the handlers of some designs."""
    rows = main_process(result["rows"])
    return {name: _counted(rows, name).handler_cycles / _instructions(rows) for name in designs}


def half_of(about: dict[str, Any]) -> int:
    """Half of the instructions of the process that executed most of a trace's: a command may be a
    script before the program meant.
    """
    return max(int(process["instructions"]) for process in about["processes"]) // 2


def measure(
    program: str,
    whole: dict[str, Any],
    passes: Sequence[tuple[Sequence[Organisation], dict[str, Any]]],
    caches: dict[str, Any] | None = None,
) -> Measurement:
    """The figures of one program from the documents of its passes, and of one over all caches."""
    rows = main_process(whole["rows"])
    sweep, sweep_instructions = [], 0
    for some, result in passes:
        of_pass = main_process(result["rows"])
        sweep_instructions = _instructions(of_pass)
        for organisation in some:
            cycles = _counted(of_pass, organisation.design).handler_cycles
            sweep.append((organisation, cycles / sweep_instructions))
    return Measurement(
        program=program,
        instructions=_instructions(rows),
        designs={name: _counted(rows, name) for name in ALL_DESIGNS},
        sweep_instructions=sweep_instructions,
        sweep=tuple(sweep),
        alone=() if caches is None else tuple(read_alone(caches)),
    )


def _instructions(rows: Sequence[Row]) -> int:
    return int(stream_counters(rows)["instructions"])


def _counted(rows: Sequence[Row], design: str) -> Counted:
    counts = {
        f"{row['component']}.{row['counter']}": int(row["value"])
        for row in rows
        if row.get("design") == design
        and "interval" not in row
        and row["component"].split(".")[0] in ("softvm", "vcache", "core", "tlb")
    }
    return Counted(
        handler_cycles=counts["core.cycles_handler"],
        write_back_cycles=counts.get("core.cycles_write_backs", 0),
        sweep_cycles=counts.get("core.cycles_sweeps", 0),
        counts=counts,
    )
