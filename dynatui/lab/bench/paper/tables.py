"""The paper's tables as data, with figures measured here beside the paper's own numbers.

Speeds are means over texts that equal the text of `ar`. Rows with speeds state on how many prompts the text differs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from msgspec import structs

from decoder.analysis.interval import Interval
from decoder.events import arithmetic
from dynatui.lab.bench import paper as published
from dynatui.lab.bench.contenders import BASELINE
from dynatui.lab.bench.paper import HARDWARE, LENGTH, PublishedNumber
from dynatui.lab.bench.paper.records import PaperLane
from dynatui.lab.bench.paper.report import SPEED, PaperReport, Row, device, longest, noise, rows, texts_of
from dynatui.lab.frame import mean, quotients
from dynatui.lab.tables import Cell, Column, Printed, Table

PAIRED_DRAWS = 2000
"""Number of bootstrap samples for a mean of quotients."""
GAIN, GAIN_ABOVE, MEMORY_GAIN = "gain", "gain_above", "memory_gain"
"""Figures that depend on two rows, in %: gain in tokens/s over the ablation's fixed tree and over the row above, and
peak memory above the peak memory of AR.
"""
FIGURES: Mapping[str, tuple[str, int, float]] = {
    SPEED: ("tokens/s", 1, 1),
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
    GAIN_ABOVE: ("over row above %", 1, 1),
}
"""Column of each figure: title, digits after the decimal point, and factor of the values."""
PARAMETERS: Mapping[str, tuple[int, Callable[[dict[str, Any]], Cell]]] = {
    "D": (0, lambda given: given.get("depth")),
    "B": (0, lambda given: given.get("branching")),
    "tau": (2, lambda given: given.get("tau")),
    "tau_h": (2, lambda given: given.get("tau_h")),
    "tau_l": (2, lambda given: given.get("tau_l")),
    "B_min": (0, lambda given: given["branching"][0]),
    "B_max": (0, lambda given: given["branching"][2]),
    "D0": (0, lambda given: given.get("d0")),
    "D_max": (0, lambda given: given.get("d_max")),
}
"""Columns of a lane's parameters: digits after the decimal point, and function from the parameters to a cell."""


def status(row: Row) -> str:
    """Text of a table cell: whether the lane's texts equal the texts of `ar`."""
    if row.lane.own_text:
        return "may differ by design"
    different = row.prompts - row.same
    return f"differs on {different} of {row.prompts}" if different else f"{BASELINE}'s"


Chosen: TypeAlias = Callable[[PaperReport, list[Row]], list[Row]]
Columns: TypeAlias = list[tuple[Column, list[Cell]]]


def _of_method(method: str) -> Chosen:
    return lambda _, these: [row for row in longest(these) if row.lane.method == method]


def _beside_the_paper(_: PaperReport, these: list[Row]) -> list[Row]:
    return [row for row in these if row.lane.paper_name or row.lane.family == "auto"]


def _with(row: Row, **gains: Interval | None) -> Row:
    return replace(row, stats={**row.stats, **{name: gain for name, gain in gains.items() if gain}})


def _with_memory(_: PaperReport, these: list[Row]) -> list[Row]:
    """Rows at the greatest text length, with `MEMORY_GAIN`."""
    shown = longest(these)
    base = next((row.stats.get("peak_mb") for row in shown if row.lane.name == BASELINE), None)

    def gain(row: Row) -> Interval | None:
        peak = row.stats.get("peak_mb")
        return base and peak and Interval(value=100 * (peak.value / base.value - 1), low=None, high=None)

    return [_with(row, memory_gain=gain(row)) for row in shown]


def _ablation(report: PaperReport, these: list[Row]) -> list[Row]:
    """Steps of the ablation, from the fixed tree to DynaTree, with gains in tokens/s; empty without the fixed tree."""
    by_name = {row.lane.paper_name: row for row in reversed(longest(these))}
    names = (published.FIXED_BACKBONE, published.PHASE_1, published.PHASE_2, published.DYNATREE)
    steps = [by_name[name] for name in names if name in by_name]
    if published.FIXED_BACKBONE not in by_name or len(steps) < 2:
        return []
    texts = texts_of(report, steps[0].experiment)

    def gain(row: Row, base: Row) -> Interval | None:
        over = quotients(texts[texts.same], row.lane.name, base.lane.name, SPEED)
        return None if row is base else mean(100 * (over - 1), report.request.seed, draws=PAIRED_DRAWS)

    above = [steps[0], *steps]
    return [
        _with(row, gain=gain(row, steps[0]), gain_above=gain(row, before))
        for row, before in zip(steps, above, strict=False)
    ]


class Sheet(NamedTuple):
    """Layout of one of the paper's tables. From the experiment `main`, one table for each data set is made."""

    name: str
    title: str
    what: str
    columns: str
    """Keys of `FIGURES` and `PARAMETERS`, `lane`, `text`, `T` and `longest`; `paper` and `paper_rounded` are the
    paper's numbers of the preceding figure.
    """
    notes: tuple[str, ...] = ()
    experiment: str = "main"
    exact: bool = False
    """Whether the paper's numbers must have the row's T and L_max; otherwise they are from the paper's main results."""
    chosen: Chosen = lambda _, these: longest(these)


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
    mains = [each.data_set for each in report.request.experiments if each.name == "main"]
    return [
        *(table for sheet in OF_DATA_SETS for data_set in mains for table in _filled(report, sheet, data_set)),
        *_data_sets(report, mains),
        *(table for sheet in SWEEPS for table in _filled(report, sheet)),
    ]


def conditions(report: PaperReport) -> tuple[str, ...]:
    """Notes: device and models of this run and of the paper's runs, disturbances, and whether the run is complete."""
    request = report.request
    return (
        f"Here: {device(report)}, {request.target} with {request.draft}, "
        f"{arithmetic(request.dtype, request.draft_dtype)}. Paper: {HARDWARE}.",
        f"Noise: {noise(report)}.",
        *["INTERRUPTED: a part of the requested measurement is missing."] * (not report.complete),
    )


def paper_row(experiment: str, lane: PaperLane) -> str | None:
    """Row of the paper's tables, or setting of one of its sweeps, that a lane repeats; None if there is none.

    The sweep is taken from the lane's name, since some settings belong to several sweeps.
    """
    given = lane.parameters
    if experiment == "fixed_trees" and lane.method == "fixed":
        return f"Fixed D={given['depth']} B={given['branching']} tau={given['tau']:g}"
    if experiment != "sensitivity" or lane.method != "dynatree":
        return lane.paper_name
    if lane.name.startswith("branching"):
        return f"B_min={given['branching'][0]} B_max={given['branching'][2]}"
    if lane.name.startswith("d0"):
        return f"D0={given['d0']:g} D_max={given['d_max']}"
    return f"tau_h={given['tau_h']:g} tau_l={given['tau_l']:g}"


def _filled(report: PaperReport, sheet: Sheet, data_set: str | None = None) -> Iterator[Table]:
    shown = sheet.chosen(report, rows(report, sheet.experiment, data_set))
    if not shown:
        return
    of_main, experiment, text_set = sheet.experiment == "main", shown[0].experiment, shown[0].text_set
    length = experiment.lengths[-1]
    where = "of the GPU" if report.request.device.startswith("cuda") else "of the process, on a CPU"
    other = _other_setting(shown[0]) if of_main and not sheet.exact else ()
    prompts = f", prompts of at most {experiment.most} {experiment.unit}" if of_main else ""
    yield from _table(
        f"{sheet.name}_{text_set.name.replace('/', '_')}" if of_main else sheet.name,
        f"{sheet.title}: {text_set.title}, T={length}{prompts}",
        sheet.what.format(memory=where, unit=experiment.unit),
        list(_columns(sheet.columns, shown, exact=sheet.exact)),
        notes=(*sheet.notes, *other, *conditions(report)),
        usual_length=None if sheet.exact else LENGTH if of_main else length,
    )


def _columns(keys: str, shown: Sequence[Row], *, exact: bool = False) -> Iterator[tuple[Column, list[Cell]]]:
    figure, digits, factor = "", 0, 1.0
    for key in keys.split():
        if key in FIGURES:
            figure, (title, digits, factor) = key, FIGURES[key]
            column = Column(title, "number" if key == MEMORY_GAIN else "measured", digits)
            yield column, [_measured(row, figure, factor) for row in shown]
        elif key in ("paper", "paper_rounded"):
            column = Column("paper", "paper", 0 if key == "paper_rounded" else digits)
            yield column, [_published(row, figure, factor, exact=exact) for row in shown]
        elif key in PARAMETERS:
            digits, taken = PARAMETERS[key]
            yield Column(key, "number", digits), [taken(row.lane.parameters) for row in shown]
        elif key in ("T", "longest"):
            yield Column(key, "number"), [row.length if key == "T" else row.experiment.most for row in shown]
        else:
            yield Column(key), [row.lane.name if key == "lane" else status(row) for row in shown]


def _measured(row: Row, figure: str, factor: float) -> Cell:
    stat = row.stats.get(figure)
    if stat and figure == MEMORY_GAIN:
        return stat.value
    return stat.times(factor) if stat and factor != 1 else stat


def _published(row: Row, figure: str, factor: float, *, exact: bool) -> PublishedNumber | None:
    """The paper's number for a lane: if `exact`, at the row's T and L_max; otherwise, at the setting of the paper's
    main results. None if the paper has no such number.
    """
    name, data_set = paper_row(row.experiment.name, row.lane), row.text_set.stands_for
    if not exact:
        number = published.usual(name, data_set, figure)
    else:
        in_characters = row.experiment.unit == "characters"
        number = published.at(name, data_set, figure, row.length, row.experiment.most) if in_characters else None
    if number is None or factor == 1:
        return number
    std, again = (None if one is None else one * factor for one in (number.std, number.again))
    return structs.replace(number, value=number.value * factor, std=std, again=again)


def _table(
    name: str, title: str, what: str, columns: Columns, *, notes: Sequence[str], usual_length: int | None
) -> Iterator[Table]:
    """Yields the table without empty columns; yields nothing if all columns are empty.

    A note states T for numbers of the paper with a text length other than `usual_length`; if `usual_length` is None,
    there are no such notes, since every number has the T of its row.
    """
    columns = [(column, cells) for column, cells in columns if any(cell is not None for cell in cells)]
    if not columns:
        return
    cells = [*zip(*(each for _, each in columns), strict=True)]
    numbers = [cell for row in cells for cell in row if isinstance(cell, PublishedNumber)]
    marks, explained = published.footnotes(number.remark(usual_length) for number in numbers)
    sources = sorted({number.source for number in numbers})

    def printed(cell: Cell) -> Cell:
        if not isinstance(cell, PublishedNumber):
            return cell
        mark = marks[cell.remark(usual_length)]
        return Printed(value=cell.value, std=cell.std, again=cell.again, source=cell.source, mark=mark)

    yield Table(
        name=name,
        title=title,
        what=what,
        columns=tuple(column for column, _ in columns),
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


def _data_sets(report: PaperReport, mains: Sequence[str]) -> Iterator[Table]:
    """Speed-ups of all lanes on all data sets, if there are several."""
    by_set = [found for name in mains if (found := longest(rows(report, "main", name)))]
    if len(by_set) < 2:
        return
    texts: dict[str, list[str]] = {}
    for row in (row for found in by_set for row in found):
        texts.setdefault(row.lane.name, []).append(status(row))
    columns: Columns = [(Column("lane"), list(texts))]
    for found in by_set:
        names = [row.lane.name for row in found]
        for column, cells in _columns("speedup paper", found):
            by_lane = dict(zip(names, cells, strict=True))
            titled = structs.replace(column, title=f"{found[0].text_set.title}: {column.title}")
            columns.append((titled, [by_lane.get(lane) for lane in texts]))
    columns.append((Column("text"), [" / ".join(dict.fromkeys(each)) for each in texts.values()]))
    notes = dict.fromkeys(note for found in by_set for note in _other_setting(found[0]))
    yield from _table(
        "data_sets",
        f"Data sets: speed relative to {BASELINE}",
        "Speed relative to plain decoding of the same prompts, by data set.",
        columns,
        notes=(*notes, *conditions(report)),
        usual_length=LENGTH,
    )
