"""The study of software-managed address translation (Jacob and Mudge, HPCA 1997): the measurements.

Programs like those of the paper, run to their ends, decide its claims; programs of today are shown
beside them. Each program is recorded once; every simulation reads that trace. Every number of the
paper's tables is computed here once, so that the page and the JSON agree.
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
"""Changes of protection in a billion instructions: the extremes of the paper's Table 5."""
RATED = {
    rate: f"{SOFTVM}:softvm.rates.protections_per_billion={rate}"
    for rate in (LEAST_RATE, MOST_RATE)
}
"""Designs with these rates of changes of protection, in addition to the program's own."""
TRANSFERS = f"{SOFTVM}:softvm.rates.dma_pages_per_billion={MOST_RATE}"
DATA = load_study(STUDY)
PAPER, EVENTS, TABLE_1 = DATA["paper"], DATA["events"], DATA["table_1"]
VARIANTS: dict[str, str] = DATA["variants"]
BY_LINE = VARIANTS["two-tier, by lines"]
MORE_ENTRIES = f"{PHYSICAL}:softvm.tlb.entries=256"
"""The design of an experiment: its TLB covers 1 MiB, as much as the second-level cache."""
HALF_DIRTY = 0.5
"""Lines to write back for each miss, as section 5.3 assumes."""
ALL_DESIGNS = (*DESIGNS, *RATED.values(), TRANSFERS, *VARIANTS.values())
USUAL_INSTRUCTIONS = usual_instructions()
"""The instructions after which a program of today is ended at the latest."""
COMPILERS = ("gcc", "cc1", "cc1plus")
"""The programs that stand for the paper's gcc."""
_SWEEPS_AT_ONCE = 40

HANDLER_CYCLES: int = EVENTS["data_misses"][1]
TABLE_4 = [Fraction(per_million, 10**6) for _, _, per_million in EVENTS.values()]
TABLE_5 = {name: Fraction(changes, 1000) for name, changes in PAPER["table_5_per_billion"].items()}


def paper_overheads() -> list[Fraction]:
    """The last column of Table 4: the CPI of each row."""
    return [Fraction(cycles * per_million, 10**6) for _, cycles, per_million in EVENTS.values()]


def paper_cycles_per_change() -> int:
    """Section 5.4: 10 * 5 + 246 * 3 + 50 * 40 + 206 * 20."""
    return _change_cycles(PAPER["lines_of_a_page"], PAPER["lines_there"])


def paper_protection_cpi(per_million: Fraction) -> Fraction:
    """The CPI of `per_million` changes of protection in a million instructions."""
    return per_million * paper_cycles_per_change() / 10**6


def _change_cycles(checked: Sequence[int], there: Sequence[int]) -> int:
    """Cycles of a change of protection, from the lines that are checked at each level and the lines
    that are there.
    """
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
    """Counted instructions; as many instructions before them fill the caches."""
    designs: dict[str, Counted]
    sweep_instructions: int
    sweep: tuple[tuple[Organisation, float], ...]
    """CPI of translation, without write-backs, by organisation (Figure 8)."""
    alone: tuple[Alone, ...] = ()
    """Misses of caches of all sizes of both levels, over the instructions of the sweep."""
    like: str | None = None
    """The program of the paper that it stands for."""
    experiment: dict[str, float] = field(default_factory=dict)
    """CPI of the handlers in the experiments' designs, by design."""

    def cpi(self, design: str) -> float:
        """Table 3: cycles of handlers for each instruction."""
        return self.designs[design].handler_cycles / self.instructions

    def cpi_with_write_backs(self, design: str) -> float:
        """Cycles of handlers and of translating write-backs for each instruction (section 5.3)."""
        counted = self.designs[design]
        return (counted.handler_cycles + counted.write_back_cycles) / self.instructions

    @property
    def frequencies(self) -> tuple[float, ...]:
        """Events per instruction, for the rows of Table 4."""
        counts = self.designs[SOFTVM].counts
        return tuple(counts[f"softvm.{name}"] / self.instructions for name in EVENTS)

    @property
    def dirty_share(self) -> float | None:
        """Lines written back per miss of the program (misses of handlers left out); None without
        misses.
        """
        counts = self.designs[SOFTVM].counts
        nested = counts["softvm.entry_loads"]
        misses = counts["softvm.data_misses"] + counts["softvm.fetch_misses"] - nested
        return counts["softvm.write_back.lines"] / misses if misses else None

    @property
    def half_dirty_cycles(self) -> float:
        """Cycles of translating write-backs if a share HALF_DIRTY of the misses needed one."""
        dirty = self.dirty_share
        return self.designs[SOFTVM].write_back_cycles * HALF_DIRTY / dirty if dirty else 0.0

    @property
    def changes_per_million(self) -> float:
        """Pages whose protection was changed in the caches, per million instructions (Table 5)."""
        return self.designs[SOFTVM].counts["softvm.protection.pages"] * 1e6 / self.instructions

    @property
    def cycles_per_change(self) -> float | None:
        """Cycles of a change of protection; None if there was none."""
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
        """The cost of a design with a given rate of events over the plain design: the additional
        pages of the events `what` (`protection`, `dma`), and the additional cycles of sweeps for
        each instruction.
        """
        plain, rated = self.designs[SOFTVM], self.designs[design]
        pages = f"softvm.{what}.pages"
        cycles = rated.sweep_cycles - plain.sweep_cycles
        return rated.counts[pages] - plain.counts[pages], cycles / self.instructions

    def table_1(self, side: str) -> dict[str, float]:
        """The rows of Table 1 for a half (`i`, `d`), as shares."""
        counts = self.designs[VIRTUAL].counts
        rows = {name: counts[f"softvm.table1.{side}.{name}"] for name in TABLE_1}
        total = sum(rows.values())
        return {name: value / total if total else 0.0 for name, value in rows.items()}

    def swept(self, l1_bytes: int, l2_bytes: int) -> list[float]:
        """CPI of the organisations with caches of these sizes."""
        sizes = (l1_bytes, l2_bytes)
        return [cpi for tried, cpi in self.sweep if (tried.l1_bytes, tried.l2_bytes) == sizes]

    def least(self) -> tuple[Organisation, float] | None:
        """The organisation with the least overhead."""
        return min(self.sweep, key=lambda pair: pair[1], default=None)

    def handlers_alone(self, cache_bytes: int, ways: int) -> list[float]:
        """CPI of the handlers' own instructions if each miss of caches of this size and these ways
        runs a handler, by the size of lines.
        """
        return [
            alone.misses * HANDLER_CYCLES / self.sweep_instructions
            for alone in self.alone
            if (alone.cache_bytes, alone.ways) == (cache_bytes, ways)
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
    """A group of programs that claims are about."""

    measurements: tuple[Measurement, ...]

    def averages(self) -> dict[str, float | None]:
        """Average CPI, weighted by instructions as in the paper."""
        instructions = sum(m.instructions for m in self.measurements)

        def average(cpi: Callable[[Measurement], float]) -> float | None:
            total = sum(cpi(m) * m.instructions for m in self.measurements)
            return total / instructions if instructions else None

        return {
            "average_cpi": average(lambda m: m.cpi(SOFTVM)),
            "average_cpi_with_write_backs": average(lambda m: m.cpi_with_write_backs(SOFTVM)),
        }

    def values(self) -> dict[str, Any]:
        """The numbers that the claims are about."""
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
        """The CPI of translating write-backs: measured, and for HALF_DIRTY of the misses."""
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
        """The organisation with the least average overhead among the organisations that all
        programs have, and the least overhead of each program.
        """
        swept = [m for m in self.measurements if m.sweep]
        if not swept:
            return None
        cpi = [dict(m.sweep) for m in swept]
        total = sum(m.instructions for m in swept)

        def average(organisation: Organisation) -> float:
            return (
                sum(
                    by_organisation[organisation] * m.instructions
                    for by_organisation, m in zip(cpi, swept, strict=True)
                )
                / total
            )

        shared = [tried for tried in cpi[0] if all(tried in other for other in cpi)]
        organisation = min(shared, key=average, default=None)
        if organisation is None:
            return None
        return {
            "cpi": average(organisation),
            "organisation": organisation.describe(),
            "of_each": [least[1] for m in swept if (least := m.least()) is not None],
        }

    def _experiments(self) -> dict[str, Any]:
        """The numbers of the experiments; None where no experiment was made."""
        tried = [m for m in self.measurements if m.experiment]
        total = sum(m.instructions for m in tried)

        def cpi(design: str) -> float:
            return sum(m.experiment[design] * m.instructions for m in tried) / total

        falls = []
        for m in tried:
            of_sweep = dict(m.sweep)
            pairs = [
                (of_sweep[single], m.experiment[twice.design]) for single, twice in _with_twice(m)
            ]
            ratios = [cpi / other for cpi, other in pairs if other]
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
        """For each program that stands for the paper's gcc, the factor by which the overhead falls
        from the smallest to the largest of the sizes, all else equal.
        """
        ((field, (least, *_, most)),) = sizes.items()
        found = []
        for m in self.measurements:
            of_sweep = dict(m.sweep)
            pairs = (
                (cpi, of_sweep.get(replace(organisation, **{field: most})))
                for organisation, cpi in of_sweep.items()
                if getattr(organisation, field) == least
            )
            ratios = [cpi / other for cpi, other in pairs if other]
            if m.program in COMPILERS and ratios and min(ratios) > 0:
                factor = geometric_mean(ratios)
                found.append({"program": m.program, "factor": factor, "ratios": ratios})
        return found

    def _rated(self) -> dict[str, float | None]:
        """CPI at the extreme rates of changes of protection of Table 5, and cycles of a change."""
        instructions = sum(m.instructions for m in self.measurements)
        changes, cycles = 0, []
        for design in RATED.values():
            added = [(m, *m.added_by(design, "protection")) for m in self.measurements]
            changes += sum(pages for _, pages, _ in added)
            cycles.append(sum(each * m.instructions for m, _, each in added))
        least, most = (total / instructions for total in cycles)
        each = sum(cycles) / changes if changes else None
        return {"least": least, "most": most, "cycles_each": each}


@dataclass(frozen=True)
class Changes:
    """The changes of protection of a workload like one of Table 5, with all of its processes."""

    program: str
    like: str
    per_million: float
    """Pages with changed protection in a million instructions."""


@dataclass(frozen=True)
class Study(Reproduction):
    """All measurements, the least overhead first."""

    folder = STUDY
    measurements: tuple[Measurement, ...] = ()
    today: tuple[Measurement, ...] = ()
    changes: tuple[Changes, ...] = ()
    """Changes of protection of the workloads like those of Table 5."""

    def values_today(self) -> dict[str, Any]:
        """The numbers of `values` for the programs of today, without the experiments."""
        return {**Several(self.today).values(), "changes": None}

    def values(self) -> dict[str, Any]:
        """The numbers that the claims are about, of the programs like the paper's and of the
        experiments.
        """
        return {**Several(self.measurements).values(), "changes": self._changes()}

    def _changes(self) -> dict[str, Any] | None:
        """Changes of protection; each workload has the weight of the paper's by instructions."""
        if not self.changes or not self.measurements:
            return None
        of_paper = [Fraction(PAPER["table_5_changes"][workload.like]) for workload in self.changes]
        rates = [TABLE_5[workload.like] for workload in self.changes]
        weights = [changes / rate for changes, rate in zip(of_paper, rates, strict=True)]
        total = sum(
            workload.per_million * weight
            for workload, weight in zip(self.changes, weights, strict=True)
        )
        return {
            "average": total / sum(weights),
            "of_paper": float(sum(of_paper) / sum(weights)),
            "of_each": [asdict(workload) for workload in self.changes],
        }

    def averages(self) -> dict[str, float | None]:
        """The averages of the programs like the paper's."""
        return Several(self.measurements).averages()

    def document(self) -> dict[str, Any]:
        """Plain data for the JSON."""
        return {
            **super().document(),
            **self.averages(),
            "paper": {
                "table_3": PAPER["table_3"],
                "table_4": {
                    "frequencies": list(map(float, TABLE_4)),
                    "overheads": list(map(float, paper_overheads())),
                    "total": float(sum(paper_overheads())),
                },
                "cycles_per_change": paper_cycles_per_change(),
            },
            "programs": [measured.record() for measured in self.measurements],
            "today": [measured.record() for measured in self.today],
        }


def _with_twice(measured: Measurement) -> list[tuple[Organisation, Organisation]]:
    """Pairs of an organisation with the largest caches and the experiment's with twice the L2."""
    swept = largest([organisation for organisation, _ in measured.sweep])
    return list(zip(swept, doubled(swept), strict=True))


def run_study(
    request: Request,
    *,
    chosen: Sequence[Program] | None = None,
    sweep: Sequence[Organisation] | None = None,
) -> Study:
    """Runs the installed or the chosen programs over all organisations or `sweep`. If the request
    has no limit, a program of today ends after USUAL_INSTRUCTIONS.
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
    """The changes of protection of the workloads like those of Table 5."""
    arguments = [*simulate(MACHINE), "--design", SOFTVM]

    def count(program: Program, rows: list[Row]) -> Changes:
        return Changes(program.name, program.like or "", changes_of_all(rows))

    return measure_runs(arguments, load_period(f"{STUDY}_changes"), request, count, skipped)


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
        names = (SOFTVM, PHYSICAL, MORE_ENTRIES, *(organisation.design for organisation in changed))
        made = document([*command, *extent, "--design", ",".join(names), str(trace)], place)
        experiment = _handler_cpi(made, names)
    passes = []
    for first in range(0, len(swept), _SWEEPS_AT_ONCE):
        some = swept[first : first + _SWEEPS_AT_ONCE]
        designs = ",".join(organisation.design for organisation in some)
        passes.append((some, document([*command, *extent, "--design", designs, str(trace)], place)))
    caches = document(one_pass(str(trace)), place) if program.like is None else None
    results = [whole, *(result for _, result in passes)]
    rows = [row for result in results for row in result["rows"]]
    if any(row["counter"] == "out_of_memory" and row["value"] for row in rows):
        raise NotMeasured("the simulated memory ran out")
    measured = measure(program.name, whole, passes, caches)
    return replace(measured, like=program.like, experiment=experiment)


def _handler_cpi(result: dict[str, Any], designs: Sequence[str]) -> dict[str, float]:
    """CPI of the handlers of some designs."""
    rows = main_process(result["rows"])
    return {name: _counted(rows, name).handler_cycles / _instructions(rows) for name in designs}


def half_of(about: dict[str, Any]) -> int:
    """Half of the instructions of the trace's process that executed most: the command may be a
    script that starts the program to measure.
    """
    return max(int(process["instructions"]) for process in about["processes"]) // 2


def measure(
    program: str,
    whole: dict[str, Any],
    passes: Sequence[tuple[Sequence[Organisation], dict[str, Any]]],
    caches: dict[str, Any] | None = None,
) -> Measurement:
    """The numbers of one program, from the documents of its passes and `caches`, the document of
    the pass over all caches.
    """
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
