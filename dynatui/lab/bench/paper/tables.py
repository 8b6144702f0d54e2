"""The paper's tables as data, with figures measured here beside the paper's own numbers.

Speeds are means over texts that equal the text of `ar`. Rows with speeds state on how many prompts the text differs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from msgspec import structs

from decoder.analysis.interval import Interval
from decoder.events import arithmetic
from dynatui.lab.bench.contenders import BASELINE
from dynatui.lab.bench.paper import published
from dynatui.lab.bench.paper.claim_tests import PAIRED_DRAWS, same_texts
from dynatui.lab.bench.paper.published import (
    FIXED_BACKBONE,
    GAIN,
    HARDWARE,
    LENGTH,
    MEMORY_GAIN,
    PublishedNumber,
    marks,
)
from dynatui.lab.bench.paper.report import PaperReport, Row, device, greatest, noise, rows
from dynatui.lab.frame import mean, quotients
from dynatui.lab.tables.data import Cell, Column, Printed, Table

Taken: TypeAlias = Callable[[Row], Cell | PublishedNumber]
Spec: TypeAlias = tuple[Column, Taken]
FIGURES: Mapping[str, tuple[str, int, float]] = {
    "tokens_per_second": ("tokens/s", 1, 1),
    "speedup": (f"x {BASELINE}", 2, 1),
    "ttft_ms": ("TTFT ms", 1, 1),
    "tpot_ms": ("TPOT ms", 2, 1),
    "acceptance_rate": ("accepted %", 1, 100),
    "paper_acceptance": ("paper's acc. %", 1, 100),
    "tokens_per_round": ("L-bar", 2, 1),
    "paper_path_length": ("l-bar", 2, 1),
    "rounds": ("rounds", 0, 1),
    "nodes_per_round": ("nodes a round", 1, 1),
    "target_forwards_per_round": ("target passes", 2, 1),
    "draft_forwards_per_round": ("draft passes", 2, 1),
    "distinct_8grams": ("distinct 8-grams %", 0, 100),
    "peak_mb": ("peak MB", 1, 1),
    MEMORY_GAIN: (f"over {BASELINE} %", 2, 1),
    "kv_mb": ("keys, values MB", 1, 1),
    GAIN: ("over fixed %", 1, 1),
    "gain_above": ("over row above %", 1, 1),
}
"""Column of each figure: title, digits after the decimal point, and factor of the values."""


def _parameter(name: str, part: int | None = None) -> Callable[[Row], Cell]:
    """Function that returns a parameter of a row's lane; `part` is the index into a parameter with several values."""

    def take(row: Row) -> Cell:
        value: Any = row.lane.parameters.get(name)
        found: Cell = value if value is None or part is None else value[part]
        return found

    return take


def status(row: Row) -> str:
    """Text of a table cell: whether the lane's texts equal the texts of `ar`."""
    if row.lane.own_text:
        return "may differ by design"
    different = row.cell.prompts - row.cell.same
    return f"differs on {different} of {row.cell.prompts}" if different else f"{BASELINE}'s"


OTHERS: Mapping[str, Spec] = {
    "lane": (Column("lane"), lambda row: row.lane.name),
    "text": (Column("text"), status),
    "T": (Column("T", "number"), lambda row: row.cell.length),
    "longest": (Column("longest", "number"), lambda row: row.cell.most),
    "D": (Column("D", "number"), _parameter("depth")),
    "B": (Column("B", "number"), _parameter("branching")),
    "tau": (Column("tau", "number", 2), _parameter("tau")),
    "tau_h": (Column("tau_h", "number", 2), _parameter("tau_h")),
    "tau_l": (Column("tau_l", "number", 2), _parameter("tau_l")),
    "B_min": (Column("B_min", "number"), _parameter("branching", 0)),
    "B_max": (Column("B_max", "number"), _parameter("branching", 2)),
    "D0": (Column("D0", "number"), _parameter("d0")),
    "D_max": (Column("D_max", "number"), _parameter("d_max")),
}
"""Columns without a measured figure."""
Chosen: TypeAlias = Callable[[PaperReport, list[Row]], list[Row]]


def _longest(_: PaperReport, these: list[Row]) -> list[Row]:
    return greatest(these, "length")


def _of_method(method: str) -> Chosen:
    return lambda report, these: [row for row in _longest(report, these) if row.lane.method == method]


def _beside_the_paper(_: PaperReport, these: list[Row]) -> list[Row]:
    return [row for row in these if row.lane.paper_name or row.lane.family == "auto"]


def _with_memory(report: PaperReport, these: list[Row]) -> list[Row]:
    """Rows at the greatest text length, with `MEMORY_GAIN`: peak memory above the peak memory of `ar`, in %."""
    shown = _longest(report, these)
    peaks = {row.lane.name: row.cell.stats["peak_mb"].value for row in shown if "peak_mb" in row.cell.stats}
    if BASELINE not in peaks:
        return shown
    more = {name: 100 * (peak / peaks[BASELINE] - 1) for name, peak in peaks.items()}
    return [row._replace(more={MEMORY_GAIN: more.get(row.lane.name)}) for row in shown]


def _ablation(report: PaperReport, these: list[Row]) -> list[Row]:
    """Steps of the ablation, from the fixed tree to DynaTree, with gains in tokens/s; empty without the fixed tree."""
    by_name = {row.lane.paper_name: row for row in reversed(_longest(report, these))}
    names = (FIXED_BACKBONE, published.PHASE_1, published.PHASE_2, published.DYNATREE)
    steps = [by_name[name] for name in names if name in by_name]
    if FIXED_BACKBONE not in by_name or len(steps) < 2:
        return []
    texts = same_texts(report, steps[0].experiment)

    def gain(row: Row, base: Row) -> Interval | None:
        over = quotients(texts, row.lane.name, base.lane.name, "tokens_per_second")
        found = None if row is base else mean(over, report.header.request.seed, draws=PAIRED_DRAWS)
        return found and _less(found.times(100), 100)

    above = [steps[0], *steps]
    return [
        row._replace(more={GAIN: gain(row, steps[0]), "gain_above": gain(row, before)})
        for row, before in zip(steps, above, strict=False)
    ]


def _less(interval: Interval, by: float) -> Interval:
    low, high = (None if end is None else end - by for end in (interval.low, interval.high))
    return structs.replace(interval, value=interval.value - by, low=low, high=high)


class Sheet(NamedTuple):
    """Layout of one of the paper's tables. From the experiment `main`, one table for each data set is made."""

    name: str
    title: str
    what: str
    columns: str
    """Keys of `FIGURES` and `OTHERS`; `paper` and `paper_rounded` are the paper's numbers of the preceding figure."""
    notes: tuple[str, ...] = ()
    experiment: str = "main"
    exact: bool = False
    """Whether the paper's numbers must have the row's T and L_max; otherwise they are from the paper's main results."""
    chosen: Chosen = _longest


_SPEEDS = ("Tokens/s here do not include the prefill of the prompt; the paper's tokens/s include it.",)
_DEPTHS = (
    "In the authors' code, fixed trees and phase 1 have a drafted root with D levels below it, and a round commits at "
    "most D + 2 tokens. Here they have D drafted levels, and a round commits at most D + 1 tokens.",
)
OF_DATA_SETS = (
    Sheet(
        "main",
        "Main results",
        "Speed of each lane; all lanes decode the same prompts.",
        "lane tokens_per_second paper speedup paper text",
        _SPEEDS,
    ),
    Sheet(
        "latency",
        "Latency",
        "TTFT: time of the lane's own prefill and first round. TPOT: time per token after the prompt.",
        "lane ttft_ms paper tpot_ms paper text",
    ),
    Sheet(
        "verification",
        "Verification efficiency",
        "Accepted: accepted nodes as a percentage of drafted nodes. Paper's acceptance: committed tokens, bonus tokens "
        "included, divided by rounds x (D0 + 2), or for a chain by rounds x K. L-bar: tokens of all prompts divided by "
        "all rounds. l-bar: tokens per round, averaged over prompts, bonus tokens included, as in the paper's code. "
        "Repetitive texts, with few distinct 8-grams, are easy to draft.",
        "lane acceptance_rate paper_acceptance paper tokens_per_round paper paper_path_length paper rounds paper "
        "nodes_per_round target_forwards_per_round draft_forwards_per_round distinct_8grams text",
        _DEPTHS,
    ),
    Sheet(
        "ablation",
        "Ablation",
        "From the fixed tree to DynaTree, each row adds one rule: breadth, depth, history.",
        "lane tokens_per_second paper gain paper gain_above tokens_per_round paper rounds paper text",
        _DEPTHS,
        chosen=_ablation,
    ),
    Sheet(
        "length",
        "Length scaling",
        "Figures of the first T new tokens of each text, for several T; lanes: auto and those in the paper.",
        "T lane tokens_per_second paper speedup paper tokens_per_round paper paper_path_length paper "
        "paper_acceptance paper text",
        _SPEEDS,
        exact=True,
        chosen=_beside_the_paper,
    ),
    Sheet(
        "memory",
        "Memory",
        "Peak memory {memory}, with both models loaded for every lane, and memory allocated for keys and values.",
        "lane peak_mb paper memory_gain paper kv_mb",
        chosen=_with_memory,
    ),
)
SWEEPS = (
    Sheet(
        "prompt_length",
        "Prompt length",
        "Speed by maximum prompt length, in {unit}.",
        "longest lane tokens_per_second paper speedup paper text",
        experiment="prompt_length",
        exact=True,
    ),
    Sheet(
        "fixed_trees",
        "Sweep of fixed trees",
        "Speed of fixed trees with different depths D, branchings B and thresholds tau.",
        "D B tau tokens_per_second paper_rounded speedup paper_path_length nodes_per_round text",
        experiment="fixed_trees",
        chosen=_of_method("fixed"),
    ),
    Sheet(
        "sensitivity",
        "Sensitivity of DynaTree to its thresholds, breadth and depth",
        "One pair of parameters is varied at a time.",
        "tau_h tau_l B_min B_max D0 D_max tokens_per_second paper speedup tokens_per_round nodes_per_round text",
        experiment="sensitivity",
        chosen=_of_method("dynatree"),
    ),
)


def tables(report: PaperReport) -> list[Table]:
    """All tables that are not empty, in the paper's order."""
    mains = [each.data_set for each in report.header.request.experiments if each.name == "main"]
    return [
        *(table for sheet in OF_DATA_SETS for data_set in mains for table in _filled(report, sheet, data_set)),
        *_data_sets(report),
        *(table for sheet in SWEEPS for table in _filled(report, sheet)),
    ]


def conditions(report: PaperReport) -> tuple[str, ...]:
    """Notes: device and models of this run and of the paper's runs, disturbances, and whether the run is complete."""
    request = report.header.request
    return (
        f"Here: {device(report)}, {request.target} with {request.draft}, "
        f"{arithmetic(request.dtype, request.draft_dtype)}. "
        f"Paper: {HARDWARE}.",
        f"Noise: {noise(report)}.",
        *["INTERRUPTED: a part of the requested measurement is missing."] * (not report.complete),
    )


def _filled(report: PaperReport, sheet: Sheet, data_set: str | None = None) -> Iterator[Table]:
    shown = sheet.chosen(report, rows(report, sheet.experiment, data_set))
    if not shown:
        return
    of_main, (_, _, experiment, text_set, _) = sheet.experiment == "main", shown[0]
    length = experiment.lengths[-1]
    where = "of the GPU" if report.header.request.device.startswith("cuda") else "of the process, on a CPU"
    other = _other_setting(shown[0]) if of_main and not sheet.exact else ()
    prompts = f", prompts of at most {experiment.most} {experiment.unit}" if of_main else ""
    yield from _table(
        f"{sheet.name}_{experiment.data_set.replace('/', '_')}" if of_main else sheet.name,
        f"{sheet.title}: {text_set.title}, T={length}{prompts}",
        sheet.what.format(memory=where, unit=experiment.unit),
        shown,
        _specs(sheet.columns, exact=sheet.exact),
        notes=(*sheet.notes, *other, *conditions(report)),
        usual_length=None if sheet.exact else LENGTH if of_main else length,
    )


def _specs(columns: str, *, exact: bool = False) -> Iterator[Spec]:
    figure, digits, scale = "", 0, 1.0
    for name in columns.split():
        if name in OTHERS:
            yield OTHERS[name]
        elif name in ("paper", "paper_rounded"):
            shown = 0 if name == "paper_rounded" else digits
            yield Column("paper", "paper", shown), partial(_published, figure, scale, exact)
        else:
            figure, (title, digits, scale) = name, FIGURES[name]
            column = Column(title, "number" if name == MEMORY_GAIN else "measured", digits)
            yield column, partial(_measured, figure, scale)


def _measured(figure: str, scale: float, row: Row) -> Cell:
    value = row.cell.stats.get(figure, row.more.get(figure))
    return value.times(scale) if isinstance(value, Interval) and scale != 1 else value


def _published(figure: str, scale: float, exact: bool, row: Row) -> PublishedNumber | None:  # noqa: FBT001 - partial
    number = row.paper(figure, exact=exact)
    if number is None or scale == 1:
        return number
    std, again = (None if one is None else one * scale for one in (number.std, number.again))
    return structs.replace(number, value=number.value * scale, std=std, again=again)


def _table(
    name: str,
    title: str,
    what: str,
    shown: Sequence[Row],
    specs: Iterable[Spec],
    *,
    notes: Sequence[str],
    usual_length: int | None,
) -> Iterator[Table]:
    """Yields the table without empty columns; yields nothing if all columns are empty.

    A note states T for numbers of the paper with a text length other than `usual_length`; if `usual_length` is None,
    there are no such notes, since every number has the T of its row.
    """
    taken = [(column, [take(row) for row in shown]) for column, take in specs]
    taken = [(column, cells) for column, cells in taken if any(cell is not None for cell in cells)]
    if not taken:
        return
    cells = [*zip(*(column for _, column in taken), strict=True)]
    numbers = [cell for row in cells for cell in row if isinstance(cell, PublishedNumber)]
    known, explained = marks(number.remark(usual_length) for number in numbers)
    sources = sorted({number.source for number in numbers})

    def printed(cell: Cell | PublishedNumber) -> Cell:
        if not isinstance(cell, PublishedNumber):
            return cell
        mark = known[cell.remark(usual_length)]
        return Printed(value=cell.value, std=cell.std, again=cell.again, source=cell.source, mark=mark)

    yield Table(
        name=name,
        title=title,
        what=what,
        columns=tuple(column for column, _ in taken),
        rows=tuple(tuple(map(printed, row)) for row in cells),
        notes=(
            *[f"Paper: {', '.join(sources)}."] * bool(sources),
            *["After a slash: the same number from another run of the authors."] * any(each.again for each in numbers),
            *explained,
            *notes,
        ),
    )


def _other_setting(first: Row) -> tuple[str, ...]:
    """Note on the text length and prompt length of the paper's numbers, if they differ from those of the experiment."""
    stands_for, experiment = first.text_set.stands_for or "", first.experiment
    most = published.MOST.get(stands_for)
    if most is None or (LENGTH, most, "characters") == (experiment.lengths[-1], experiment.most, experiment.unit):
        return ()
    return (f"The paper's numbers: {stands_for}, T={LENGTH}, prompts of at most {most} characters.",)


def _data_sets(report: PaperReport) -> Iterator[Table]:
    names = dict.fromkeys(row.cell.data_set for row in rows(report, "main"))
    by_set = {name: {row.lane.name: row for row in greatest(rows(report, "main", name), "length")} for name in names}
    if len(by_set) < 2:
        return
    every = {name: row for each in by_set.values() for name, row in each.items()}
    firsts = [next(iter(each.values())) for each in by_set.values()]

    def in_set(name: str, take: Taken) -> Taken:
        return lambda row: take(by_set[name][row.lane.name]) if row.lane.name in by_set[name] else None

    specs: list[Spec] = [OTHERS["lane"]]
    for first in firsts:
        for column, take in _specs("speedup paper"):
            titled = structs.replace(column, title=f"{first.text_set.title}: {column.title}")
            specs.append((titled, in_set(first.cell.data_set, take)))
    texts = {
        lane: " / ".join(dict.fromkeys(status(each[lane]) for each in by_set.values() if lane in each))
        for lane in every
    }
    yield from _table(
        "data_sets",
        f"Data sets: speed relative to {BASELINE}",
        "Speed relative to plain decoding of the same prompts, by data set.",
        list(every.values()),
        [*specs, (Column("text"), lambda row: texts[row.lane.name])],
        notes=(*dict.fromkeys(note for first in firsts for note in _other_setting(first)), *conditions(report)),
        usual_length=LENGTH,
    )
