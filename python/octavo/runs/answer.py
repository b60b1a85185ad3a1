"""The answer to "which page size?" where it rests on page walks: the decision, its expected gain
and cost, the certainty, and the settings to paste.

It is derived from the pieces of advice, which are shown as evidence.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from octavo.actions.candidates import SHARED_FOR_ALL
from octavo.actions.model import own_command
from octavo.analysis.advice import Thresholds
from octavo.analysis.gain import LEAST_SHOWN, Gain
from octavo.analysis.rows import family_of
from octavo.base.huge_pages import MIN_FILL_OPTION, PMD_PAGE
from octavo.base.text import shell_line
from octavo.base.units import (
    BASE_PAGE,
    counted,
    format_bytes,
    format_count,
    format_duration,
    format_share,
)

Record = dict[str, Any]

_NOT_SETTINGS = ("note", "madvise", "linker")
"""Kinds of actions that have no lines for a shell, or lines that help only after rebuilding."""
_LOAD = "LOAD"
"""Stands for the command of a load generator."""
_SAME_LOAD = "# Give the server the same load again."
_LITTLE_SECONDS = 0.1
"""Least time that a sentence mentions."""
_NOTABLE_TIMES = 5
"""The answer to keep 4 KiB is called not certain where the high estimate is at least this many
times the smallest gain that is worth a change."""
_NAMED = 4
"""Limit of regions that a sentence names."""


@dataclass(frozen=True)
class Answer:
    """The decision about a whole program."""

    text: str
    changes: bool
    """Whether anything is to be done."""
    gain: Gain
    """The gain of all changes; where nothing is to be done, of the changes that were refused."""
    growth_bytes: int = 0
    """Additional memory."""
    settings: str = ""
    """Lines of shell that include the program; empty where there is nothing to paste."""
    undo: str = ""
    verify: str = ""
    """Lines of shell that measure the gain; empty without a program."""
    simulate: str = ""
    """Lines of shell that simulate the gain; empty where that is not known to be possible."""
    is_uncertain: bool = False
    """Whether a gain within its interval would change the decision."""

    def record(self) -> Record:
        """Plain data for the JSON."""
        return {
            "changes": self.changes,
            "gain": asdict(self.gain),
            "growth_bytes": self.growth_bytes,
            "settings": self.settings,
            "undo": self.undo,
            "verify": self.verify,
            "simulate": self.simulate,
        }


def answer_of(
    items: Sequence[Record],
    machine: str,
    cost_label: str,
    program: Sequence[str] | None,
    limits: Thresholds,
    *,
    walks: int,
    memory: Mapping[int, int],
    machine_sizes: Collection[int],
    chains: Mapping[int, int],
    counts_fitting: bool = True,
    is_server: bool = False,
    was_stopped: bool = False,
    is_tried: Callable[[Record], bool] = lambda action: True,
    seconds_of_pages: Callable[[int], float] = lambda pages: 0.0,
    run_seconds: float | None = None,
    simulation: str = "",
) -> Answer:
    """The answer from the records of the advice, in which code and data of the whole program come
    first.

    `machine` is the machine for which gains were estimated, `cost_label` the source of the costs,
    `program` the command if there is one. `walks` is the number of walks to 4 KiB pages, `memory`
    the bytes of all memory by page size, `machine_sizes` the page sizes of the machine. `chains`
    comes from `exec_chains`. `counts_fitting` says whether the growth of data counts 2 MiB pages
    only where they fit. `is_server` says whether the command starts a server, which is measured
    under a load; `was_stopped` that the program did not end by itself, so that it may be a server.
    `is_tried` returns whether `octavo verify` tries an action by default, `seconds_of_pages` the
    time to make a number of 2 MiB pages. `run_seconds` is the estimated native time of the program,
    if it ended. `simulation` is a line of shell that simulates data in 2 MiB pages, if there is
    one.
    """
    items = _without_small_reach(items, limits)
    chosen = _chosen(items)
    if not chosen:
        return _keep(items, machine, cost_label, limits, walks, machine_sizes)
    action = _first_to_paste(chosen)
    all_gain = _less(_sum(chosen), _sum(_present(items, chosen)))
    is_late = action.get("kind") == "apply"
    if is_late:
        # It makes pages of memory in use, so it saves no page faults at first touches.
        items = [_of_walks(item) for item in items]
        chosen = _chosen(items)
    present = _present(items, chosen)
    gain = _less(_sum(chosen), _sum(present))
    left = _unreached(items, chosen, action) if action.get("name") else []
    if _sum(left).expected < limits.min_gain:
        left = []
    reached, reached_gain = [item for item in chosen if item not in left], _less(gain, _sum(left))
    besides = ""
    if present:
        besides = f" It has {_by_size(present)} already, which saves {_sum(present)} besides."
    making = 0.0
    if is_late:
        kept = "the pages as they are" if present else "4 KiB"
        if gain.expected < limits.min_gain:
            text = _too_late(kept, chosen, all_gain, machine, cost_label)
            return Answer(text + besides, False, gain)
        making = seconds_of_pages((_touched(reached) - _touched(present)) // PMD_PAGE)
        saved = reached_gain.expected * (run_seconds or 0.0)
        if not reached_gain.is_expected:
            making = 0.0
        elif run_seconds is not None and making >= _LITTLE_SECONDS and saved < making:
            text = _too_short(kept, reached, reached_gain, making, machine, cost_label)
            return Answer(text + besides, False, gain)
    growth = max(0, _growth(chosen, chains) - _growth(present, chains))
    largest = max(item["usable_page_size"] for item in chosen)
    if largest in memory:
        # A large page with code and data is in the growth of both.
        growth = min(growth, memory[largest] - memory[BASE_PAGE])
    lines, undo = action.get("command", ""), action.get("undo", "")
    reached_growth = min(growth, max(0, _growth(reached, chains) - _growth(present, chains)))
    is_most = not counts_fitting or any(
        item["scope"] == "region" or item["stream"] == "fetch" for item in reached
    )
    memory_text = _memory(reached_growth, _growth_share(items, reached_growth), is_most=is_most)
    text = f"Which page size? {_by_size(reached)}"
    if lines:
        text += (
            f". Expect {reached_gain} less time on {machine} ({cost_label}), for {memory_text}. "
        )
    else:
        text += f" would save {gain} of the time on {machine} ({cost_label}), for {memory_text}. "
        # A synthetic trace has no program and so no actions.
        if any(item.get("actions") for item in chosen):
            text += (
                "No setting of this system gives such pages: the evidence below says what can be "
                "done. "
            )
    text += _confidence(reached_gain, limits)
    if is_late and all_gain.expected - gain.expected >= limits.min_gain:
        text += f" All would save {all_gain} with larger pages from the first touch on."
    if making >= _LITTLE_SECONDS:
        text += (
            f" To make these pages takes the processor about {format_duration(making)}, once: runs "
            f"of more than about {format_duration(making / reached_gain.expected)} gain."
        )
    text += besides
    if left:
        names = _listed(list(dict.fromkeys(map(_subject, left))))
        text += (
            f" Such pages for {names} would save {_sum(left)} more, but the lines to paste do not "
            "reach them."
        )
    text += _for_all(action)
    if "caution" in action:
        text += f" {action['caution']}"
    verify = simulate = ""
    if lines and program:
        verify = _verify(action, program, is_server, was_stopped, is_tried)
        is_simulated = any(
            item["stream"] == "data" and item["usable_page_size"] == PMD_PAGE for item in reached
        )
        if is_simulated and simulation:
            simulate = f"{_SAME_LOAD}\n{simulation}" if is_server else simulation
    is_uncertain = gain.low < limits.min_gain
    return Answer(text, True, gain, growth, lines, undo, verify, simulate, is_uncertain)


def _verify(
    action: Record,
    program: Sequence[str],
    is_server: bool,
    was_stopped: bool,
    is_tried: Callable[[Record], bool],
) -> str:
    """The lines of shell that measure an action; empty where `octavo verify` cannot do it."""
    if action["kind"] == "mount":
        return ""
    changes_system = bool(action.get("undo"))
    options = ["--allow-system"] if changes_system else []
    name = action.get("name", "")
    if name.startswith(SHARED_FOR_ALL):
        # `octavo verify` tries it only by name, or with a result that shows shared memory.
        options += ["--settings", name]
    elif not changes_system and not is_tried(action):
        options += ["--try", _words(action)]
    options += _fill_options(action)
    if is_server:
        options += ["--metric", f"cpu:{_LOAD}"]
    line = shell_line([*own_command(), "verify", *options, "--", *program])
    if is_server:
        return f"# Put the command of a load generator in place of {_LOAD}.\n{line}"
    if was_stopped:
        return (
            f"# For a server, add --metric cpu:{_LOAD}, with the command of a load generator "
            f"in place of {_LOAD}.\n{line}"
        )
    return line


def _of_walks(item: Record) -> Record:
    """The advice with the gain of page walks alone in place of its gain, if it has one."""
    return {**item, "gain": item.get("gain_of_walks") or item.get("gain")}


def action_to_paste(items: Sequence[Record], limits: Thresholds) -> Record:
    """The action whose lines the answer shows; empty where there is none."""
    return _first_to_paste(_chosen(_without_small_reach(items, limits)))


def _touched(items: Sequence[Record]) -> int:
    return sum(item["touched_bytes_base"] for item in items)


def _too_late(
    kept: str, chosen: Sequence[Record], gain: Gain, machine: str, cost_label: str
) -> str:
    text = (
        f"Which page size? Keep {kept}: {_by_size(chosen)} would save {gain} of the time on "
        f"{machine} ({cost_label}), mostly by page faults at first touches. "
    )
    if any(action.get("undo") for item in chosen for action in _lines(item)):
        return (
            f"{text}Without a change of its settings, this system makes larger pages of that "
            "memory after its first touch; the evidence below says what else could be done."
        )
    return f"{text}This system makes larger pages of that memory only after its first touch."


def _too_short(
    kept: str, chosen: Sequence[Record], gain: Gain, making: float, machine: str, cost_label: str
) -> str:
    return (
        f"Which page size? Keep {kept} in runs as short as this: {_by_size(chosen)} would save "
        f"{gain} of the time on {machine} ({cost_label}), less than the "
        f"{format_duration(making)} that it takes the processor to make these pages. Runs of more "
        f"than about {format_duration(making / gain.expected)} gain."
    )


def _fill_options(action: Record) -> list[str]:
    """The options of an action by `octavo apply` that `octavo verify` also has."""
    prefix = list(action.get("prefix", ()))
    at = prefix.index(MIN_FILL_OPTION) if MIN_FILL_OPTION in prefix else len(prefix)
    return prefix[at : at + 2]


def _words(action: Record) -> str:
    """The value of `--try` for an action of the program alone."""
    variables = (f"{name}={value}" for name, value in action.get("environment", {}).items())
    return shlex.join([*variables, *action.get("arguments", ())])


def _chosen(items: Sequence[Record]) -> list[Record]:
    """The advice to act on: for each stream that on the whole program, or else that on regions."""
    chosen = []
    for whole in (item for item in items if item["scope"] == "program"):
        stream = whole["stream"]
        regions = [
            item
            for item in items
            if item["scope"] == "region" and item["stream"] == stream and _is_to_change(item)
        ]
        # Where no action gives such pages to all memory, one may give them to a region.
        parts_alone = not _first_to_paste([whole]) and bool(_first_to_paste(regions))
        if _is_to_change(whole) and not parts_alone:
            chosen.append(whole)
        elif whole["reason"] != "already":
            chosen += regions
    return chosen


def _present(items: Sequence[Record], chosen: Sequence[Record]) -> list[Record]:
    """The advice on regions that have their pages already and are included in `chosen`."""
    whole = {item["stream"] for item in chosen if item["scope"] == "program"}
    return [
        item
        for item in items
        if item["scope"] == "region" and item["stream"] in whole and item["reason"] == "already"
    ]


def _is_to_change(item: Record) -> bool:
    return bool(item["usable_page_size"] > BASE_PAGE and item["reason"] != "already")


def _keep(
    items: Sequence[Record],
    machine: str,
    cost_label: str,
    limits: Thresholds,
    walks: int,
    machine_sizes: Collection[int],
) -> Answer:
    whole = [item for item in items if item["scope"] == "program" and item.get("gain")]
    gain = _sum(whole)
    present = [item for item in items if item["reason"] == "already"]
    present = [item for item in present if item["scope"] == "program"] or present
    if present:
        text = (
            f"Which page size? {_by_size(present)}, which it has already: nothing is to be done. "
            f"They save {_sum(present)} of the time on {machine} ({cost_label})."
        )
        return Answer(text, False, _sum(present))
    refused = [item for item in whole if item["reason"] == "memory"]
    if refused:
        best = max(refused, key=lambda item: item["gain"]["expected"])
        size = format_bytes(best["gain_page_size"])
        text = (
            f"Which page size? Keep 4 KiB: {size} pages for {_stream(best)} would save "
            f"{_sum([best])} of the time on {machine} ({cost_label}), but take more than "
            f"{limits.max_growth:.0%} more memory (--max-growth)."
        )
        return Answer(text, False, gain)
    text, is_uncertain = f"Which page size? Keep 4 KiB: no gain is expected on {machine}", False
    saves = f"would {gain.consequence} ({cost_label})"
    by_faults = (gain.is_expected or gain.is_loss) and any(
        item.get("page_faults_base") for item in whole
    )
    if walks < limits.negligible_misses and not by_faults:
        number = f"only {counted(walks, 'page walk')}" if walks else "no page walks"
        text += f", which has {number} here"
    elif not whole:
        text = f"Which page size? {_not_measured(machine, machine_sizes)}"
    elif any(_saves_few_walks(item, limits) for item in whole):
        least = format_count(limits.negligible_misses)
        text += (
            f": larger pages would save fewer than {least} page walks of code or data, which are "
            "not a reason to change anything"
        )
    else:
        if gain.expected >= limits.min_gain:
            text = (
                "Which page size? Keep 4 KiB: neither code nor data alone gains "
                f"{limits.min_gain:.0%} on {machine}; larger pages for both {saves}"
            )
        elif gain.is_expected:
            text = (
                f"Which page size? Keep 4 KiB: the gain expected on {machine} is too small; "
                f"larger pages {saves}"
            )
        else:
            text += f"; larger pages {saves}"
        is_uncertain = gain.is_expected and gain.high >= _NOTABLE_TIMES * limits.min_gain
        if is_uncertain:
            text += (
                f". Not certain: the high estimate is {format_share(gain.high)}; measure before "
                "you rule them out"
            )
    return Answer(f"{text}.", False, gain, is_uncertain=is_uncertain)


def _saves_few_walks(item: Record, limits: Thresholds) -> bool:
    """Whether the gain is large enough and only the number of page walks is too small."""
    return bool(item["reason"] == "no-gain" and item["gain"]["expected"] >= limits.min_gain)


def _not_measured(machine: str, sizes: Collection[int]) -> str:
    larger = [format_bytes(size) for size in sorted(sizes) if size > BASE_PAGE]
    if not larger:
        return f"Keep 4 KiB: {machine} has no other page size"
    option = f"--page-sizes 4KiB,{larger[0].replace(' ', '')}"
    return (
        f"Not known: no page size of {machine} above 4 KiB was measured ({', '.join(larger)}); "
        f"{option} measures {larger[0]}"
    )


def _by_size(chosen: Sequence[Record]) -> str:
    """`2 MiB for data`, `2 MiB for Java heap and code cache`."""
    subjects: dict[int, list[str]] = {}
    for item in chosen:
        names = subjects.setdefault(item["usable_page_size"], [])
        name = _stream(item) if item["scope"] == "program" else family_of(item["region"])
        if name not in names:
            names.append(name)
    return "; ".join(
        f"{format_bytes(size)} for {_listed(names)}" for size, names in sorted(subjects.items())
    )


def _listed(names: Sequence[str]) -> str:
    """`a, b and c`, at most `_NAMED` of them."""
    if len(names) > _NAMED:
        names = [*names[: _NAMED - 1], f"{len(names) - _NAMED + 1} other kinds of regions"]
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _stream(item: Record) -> str:
    return "code" if item["stream"] == "fetch" else "data"


def _sum(items: Sequence[Record]) -> Gain:
    """The sum of the gains, which are shares of the same time; at most all of it."""
    gains = [item["gain"] for item in items if item.get("gain")]
    low, expected, high = (
        min(1.0, sum(gain[name] for gain in gains)) for name in ("low", "expected", "high")
    )
    return Gain(low, expected, high)


def _less(gain: Gain, part: Gain) -> Gain:
    """A gain without a part of it that was estimated with the same assumptions."""
    expected = gain.expected - part.expected
    ends = sorted((gain.low - part.low, expected, gain.high - part.high))
    return Gain(ends[0], expected, ends[2])


def _growth(items: Sequence[Record], chains: Mapping[int, int]) -> int:
    """Bytes that pieces of advice take together. Of the images of one process, only the image that
    takes most counts.
    """
    by_image: Counter[int | None] = Counter()
    for item in items:
        by_image[item.get("process")] += max(0, item["growth_bytes"])
    most: dict[int | None, int] = {}
    for image, growth in by_image.items():
        chain = None if image is None else chains.get(image, image)
        most[chain] = max(growth, most.get(chain, 0))
    return sum(most.values())


def _growth_share(items: Sequence[Record], growth: int) -> float | None:
    base = _touched([item for item in items if item["scope"] == "program"])
    return growth / base if base else None


def _for_all(action: Record) -> str:
    """A sentence about effects of the lines to paste on other programs; empty without any."""
    added = sum(
        (int(one["value"]) - int(one["now"])) * action["page_size"]
        for one in action.get("settings", ())
        if one["path"].endswith("/nr_hugepages")
    )
    if added:
        return (
            f" The lines to paste reserve {format_bytes(added)}, which nothing else can use then."
        )
    if action.get("undo"):
        return " The lines to paste need root and change settings for every program until reboot."
    return ""


def _memory(growth: int, share: float | None, *, is_most: bool) -> str:
    """The growth in words; `is_most` says that it is an upper bound: larger pages may not fit."""
    if growth == 0:
        return "little more memory"
    most = "up to " if is_most else ""
    return f"{most}{format_bytes(growth)} ({format_share(share)}) more memory than in 4 KiB pages"


def _confidence(gain: Gain, limits: Thresholds) -> str:
    if gain.low >= limits.min_gain:
        return "Even the low estimate is worth it."
    low = f"is below {limits.min_gain:.0%}"
    if gain.low <= -LEAST_SHOWN:
        low = f"loses {format_share(-gain.low)} of the time"
    return f"Not certain: the low estimate {low}; measure before you rely on it."


def _unreached(items: Sequence[Record], chosen: Sequence[Record], action: Record) -> list[Record]:
    """The advice in `chosen`, and on regions included in it, that an action does not reach."""
    left: list[Record] = []
    for item in chosen:
        if not _reaches(action, item):
            left.append(item)
        elif item["scope"] == "program":
            left += [
                part
                for part in items
                if part["scope"] == "region"
                and part["stream"] == item["stream"]
                and _is_to_change(part)
                and not _reaches(action, part)
            ]
    return left


def gain_of_action(items: Sequence[Record], name: str, *, is_library: bool = False) -> Gain | None:
    """The gain for the memory that the action of this name reaches. None where no advice has the
    action, unless it is the preloaded library, whose reach is always known.
    """
    action: Record | None = next(
        (
            one
            for item in items
            for one in item.get("actions", ())
            if one.get("name") == name and one["page_size"] == item["usable_page_size"]
        ),
        {"name": name, "kind": "apply"} if is_library else None,
    )
    if action is None or not _chosen(items):
        return None
    if action["kind"] == "apply":
        # As in the answer: it saves no page faults at first touches.
        items = [_of_walks(item) for item in items]
    chosen = _chosen(items)
    less = _sum([*_present(items, chosen), *_unreached(items, chosen, action)])
    return _less(_sum(chosen), less)


def _without_small_reach(items: Sequence[Record], limits: Thresholds) -> list[Record]:
    """The advice without actions for all code or data that reach too little of it to gain."""
    return [
        item
        if item["scope"] == "region"
        else {
            **item,
            "actions": [
                action
                for action in item["actions"]
                if not _reaches_too_little(action, items, item, limits)
            ],
        }
        for item in items
    ]


def _reaches_too_little(
    action: Record, items: Sequence[Record], whole: Record, limits: Thresholds
) -> bool:
    """Whether an action leaves out regions worth a change, and gains too little in the others."""
    if not action.get("name") or not _is_to_change(whole):
        return False
    left = _unreached(items, [whole], action)
    is_much = _sum(left).expected >= limits.min_gain
    if action["kind"] == "apply":
        items, left, whole = [*map(_of_walks, items)], [*map(_of_walks, left)], _of_walks(whole)
    gain = _less(_sum([whole]), _sum([*_present(items, [whole]), *left]))
    return is_much and gain.expected < limits.min_gain


def _subject(item: Record) -> str:
    """`code`, `data of heap`, `libc.so.6 data`."""
    stream = _stream(item)
    if item["scope"] == "program":
        return stream
    region = family_of(item["region"])
    return region if region.endswith(f" {stream}") else f"{stream} of {region}"


def _reaches(action: Record, item: Record) -> bool:
    """Whether an action reaches the memory of a piece of advice."""
    if any(other.get("name") == action["name"] for other in item["actions"]):
        return True
    # The library reaches all such memory, also where only a switch is offered.
    is_all = item["scope"] == "program" and item["stream"] == "data"
    is_own = is_all or item.get("region_kind") in ("heap", "anonymous")
    return action["kind"] == "apply" and is_own and any(a["command"] for a in item["actions"])


def _first_to_paste(chosen: Sequence[Record]) -> Record:
    """The first action with lines for a shell, of the advice that gains most; empty without any.

    Actions that give smaller pages than advised do not count, as the gain would differ from that of
    the answer.
    """
    by_gain = sorted(chosen, key=lambda item: -(item.get("gain") or {"expected": 0})["expected"])
    return next((action for item in by_gain for action in _lines(item)), {})


def _lines(item: Record) -> Iterator[Record]:
    """The actions of a piece of advice that have lines for a shell and give pages of its size."""
    for action in item["actions"]:
        fits = action.get("page_size") in (None, item["usable_page_size"])
        if fits and action["command"] and action["kind"] not in _NOT_SETTINGS:
            yield action
