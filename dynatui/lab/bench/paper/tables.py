"""The paper's tables with figures measured here, next to the paper's own numbers where the paper has them.

All functions are pure.

Speeds are means over texts that equal the text of `ar`; every row says on how many prompts the text differs.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from msgspec import structs

from decoder.analysis.interval import Interval
from decoder.events import arithmetic
from dynatui.lab.bench.paper import published
from dynatui.lab.bench.paper.paired import Course, courses, mean_and_std, speed
from dynatui.lab.bench.paper.published import FIXED_BACKBONE, HARDWARE, LENGTH, PublishedNumber
from dynatui.lab.bench.paper.report import PaperReport
from dynatui.lab.bench.paper.request import PaperExperiment, PaperRequest
from dynatui.lab.bench.paper.rows import (
    AR,
    SPEED,
    Row,
    Spec,
    beside_the_paper,
    exact,
    lane_name,
    longest,
    measured,
    number,
    printed,
    rows,
    same_text,
    status,
    table,
    usual,
    words,
)
from dynatui.lab.bench.paper.setup_table import device, noise
from dynatui.lab.bench.paper.sweep_tables import fixed_trees, prompt_length, sensitivity
from dynatui.lab.tables.data import Cell, Column, Table

ABLATION = (FIXED_BACKBONE, published.PHASE_1, published.PHASE_2, published.DYNATREE)
"""Rows of the ablation, from the fixed tree to DynaTree; each row adds one rule."""
SPEEDS = ("Tokens/s here do not include the prefill of the prompt; the paper's tokens/s include it.",)
DEPTHS = (
    "In the authors' code, fixed trees and phase 1 have a drafted root with D levels below it, and a round commits at "
    "most D + 2 tokens. Here they have D drafted levels, and a round commits at most D + 1 tokens.",
)
"""Note on the different depths of trees here and in the authors' code."""


def tables(report: PaperReport) -> list[Table]:
    """All tables that are not empty, in the paper's order."""
    notes = conditions(report)
    mains = [experiment for experiment in report.header.request.experiments if experiment.name == "main"]
    by_data_set = (_main, _latency, _verification, _ablation, _length, _memory)
    of_data_sets = [each for make in by_data_set for experiment in mains for each in make(report, experiment, notes)]
    across = (_data_sets, prompt_length, fixed_trees, sensitivity)
    return [*of_data_sets, *(each for make in across for each in make(report, notes))]


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


def setting(request: PaperRequest, experiment: PaperExperiment) -> str:
    """Setting of an experiment in words: data set, text length and maximum prompt length."""
    title = request.text_set(experiment.data_set).title
    return f"{title}, T={experiment.lengths[-1]}, prompts of at most {experiment.most} {experiment.unit}"


def _of(report: PaperReport, experiment: PaperExperiment) -> list[Row]:
    return longest(list(rows(report, "main", experiment.data_set)))


def _name(name: str, experiment: PaperExperiment) -> str:
    return f"{name}_{experiment.data_set.replace('/', '_')}"


def _per_lane(
    name: str, title: str, what: str, specs: Sequence[Spec], remarks: Sequence[str] = ()
) -> Callable[[PaperReport, PaperExperiment, Sequence[str]], Iterator[Table]]:
    """Function that makes a table of all lanes on one data set, next to the paper's main results."""

    def make(report: PaperReport, experiment: PaperExperiment, notes: Sequence[str]) -> Iterator[Table]:
        heading = f"{title}: {setting(report.header.request, experiment)}"
        shown = _of(report, experiment)
        other = _other_setting(experiment, shown)
        yield from table(
            _name(name, experiment), heading, what, shown, specs, notes=(*remarks, *other, *notes), usual_length=LENGTH
        )

    return make


def _other_setting(experiment: PaperExperiment, shown: Sequence[Row]) -> tuple[str, ...]:
    """Note on the text length and prompt length of the paper's numbers, if they differ from those of the experiment."""
    stands_for = next((row.text_set.stands_for for row in shown), None)
    if stands_for is None or stands_for not in published.MOST:
        return ()
    most = published.MOST[stands_for]
    same = (LENGTH, most, "characters") == (experiment.lengths[-1], experiment.most, experiment.unit)
    return () if same else (f"The paper's numbers: {stands_for}, T={LENGTH}, prompts of at most {most} characters.",)


_main = _per_lane(
    "main",
    "Main results",
    "Speed of each lane; all lanes decode the same prompts.",
    [
        lane_name(),
        SPEED[0],
        printed(usual("tokens_per_second"), 1),
        SPEED[1],
        printed(usual("speedup"), 2),
        same_text(),
    ],
    SPEEDS,
)
_latency = _per_lane(
    "latency",
    "Latency",
    "TTFT: time of the lane's own prefill and first round. TPOT: time per token after the prompt.",
    [
        lane_name(),
        measured("ttft_ms", "TTFT ms", 1),
        printed(usual("ttft_ms"), 1),
        measured("tpot_ms", "TPOT ms", 2),
        printed(usual("tpot_ms"), 2),
        same_text(),
    ],
)
_verification = _per_lane(
    "verification",
    "Verification efficiency",
    "Accepted: accepted nodes as a percentage of drafted nodes. Paper's acceptance: committed tokens, bonus tokens "
    "included, divided by rounds x (D0 + 2), or for a chain by rounds x K. L-bar: tokens of all prompts divided by all "
    "rounds. l-bar: tokens per round, averaged over prompts, bonus tokens included, as in the paper's code. Repetitive "
    "texts, with few distinct 8-grams, are easy to draft.",
    [
        lane_name(),
        measured("acceptance_rate", "accepted %", 1, 100),
        measured("paper_acceptance", "paper's acc. %", 1, 100),
        printed(usual("paper_acceptance"), 1, 100),
        measured("tokens_per_round", "L-bar", 2),
        printed(usual("tokens_per_round"), 2),
        measured("paper_path_length", "l-bar", 2),
        printed(usual("paper_path_length"), 2),
        measured("rounds", "rounds", 0),
        printed(usual("rounds"), 0),
        measured("nodes_per_round", "nodes a round", 1),
        measured("target_forwards_per_round", "target passes", 2),
        measured("draft_forwards_per_round", "draft passes", 2),
        measured("distinct_8grams", "distinct 8-grams %", 0, 100),
        same_text(),
    ],
    DEPTHS,
)


def _memory(report: PaperReport, experiment: PaperExperiment, notes: Sequence[str]) -> Iterator[Table]:
    plain = report.cell("main", experiment.data_set, AR)
    base = plain.stats.get("peak_mb") if plain else None

    def more(row: Row) -> float | None:
        peak = row.cell.stats.get("peak_mb")
        return 100 * (peak.value / base.value - 1) if peak and base else None

    where = "of the GPU" if report.header.request.device.startswith("cuda") else "of the process, on a CPU"
    make = _per_lane(
        "memory",
        "Memory",
        f"Peak memory {where}, with both models loaded for every lane, and memory allocated for keys and values.",
        [
            lane_name(),
            measured("peak_mb", "peak MB", 1),
            printed(usual("peak_mb"), 1),
            number(f"over {AR} %", more, 2),
            printed(usual(published.MEMORY_GAIN), 2),
            measured("kv_mb", "keys, values MB", 1),
        ],
    )
    yield from make(report, experiment, notes)


def _ablation(report: PaperReport, experiment: PaperExperiment, notes: Sequence[str]) -> Iterator[Table]:
    by_name = {row.lane.paper_name: row for row in reversed(_of(report, experiment))}
    steps = [by_name[name] for name in ABLATION if name in by_name]
    course = next((each for each in courses(report, "main") if each.experiment == experiment), None)
    if FIXED_BACKBONE not in by_name or len(steps) < 2 or course is None:
        return
    before = {row.lane.name: steps[max(0, place - 1)].lane.name for place, row in enumerate(steps)}

    def gain(title: str, base: Callable[[Row], str]) -> Spec:
        return Column(title, "measured", 1), lambda row: _gain(course, row.lane.name, base(row))

    yield from table(
        _name("ablation", experiment),
        f"Ablation: {setting(report.header.request, experiment)}",
        "From the fixed tree to DynaTree, each row adds one rule: breadth, depth, history.",
        steps,
        [
            lane_name(),
            SPEED[0],
            printed(usual("tokens_per_second"), 1),
            gain("over fixed %", lambda _: steps[0].lane.name),
            printed(usual(published.GAIN), 1),
            gain("over row above %", lambda row: before[row.lane.name]),
            measured("tokens_per_round", "L-bar", 2),
            printed(usual("tokens_per_round"), 2),
            measured("rounds", "rounds", 0),
            printed(usual("rounds"), 0),
            same_text(),
        ],
        notes=(*DEPTHS, *_other_setting(experiment, steps), *notes),
        usual_length=LENGTH,
    )


def _gain(course: Course, lane: str, base: str) -> Interval | None:
    """Gain in tokens/s over another lane, in %; the lanes are compared block by block."""
    if lane == base:
        return None
    quotient = mean_and_std(course.quotients(lane, base, speed), course.seed)
    if quotient is None:
        return None
    percent = quotient.times(100)
    low, high = (None if end is None else end - 100 for end in (percent.low, percent.high))
    return structs.replace(percent, value=percent.value - 100, low=low, high=high)


def _length(report: PaperReport, experiment: PaperExperiment, notes: Sequence[str]) -> Iterator[Table]:
    yield from table(
        _name("length", experiment),
        f"Length scaling: {setting(report.header.request, experiment)}",
        "Figures of the first T new tokens of each text, for several T; lanes: auto and those in the paper.",
        beside_the_paper(list(rows(report, "main", experiment.data_set))),
        [
            number("T", lambda row: row.cell.length),
            lane_name(),
            SPEED[0],
            printed(exact("tokens_per_second"), 1),
            SPEED[1],
            printed(exact("speedup"), 2),
            measured("tokens_per_round", "L-bar", 2),
            printed(exact("tokens_per_round"), 2),
            measured("paper_path_length", "l-bar", 2),
            printed(exact("paper_path_length"), 2),
            measured("paper_acceptance", "paper's acc. %", 1, 100),
            printed(exact("paper_acceptance"), 1, 100),
            same_text(),
        ],
        notes=(*SPEEDS, *notes),
    )


def _data_sets(report: PaperReport, notes: Sequence[str]) -> Iterator[Table]:
    names = dict.fromkeys(row.experiment.data_set for row in rows(report, "main"))
    by_set = {name: {row.lane.name: row for row in longest(list(rows(report, "main", name)))} for name in names}
    if len(by_set) < 2:
        return
    every = {name: row for each in by_set.values() for name, row in each.items()}
    others = [_other_setting(next(iter(each.values())).experiment, [*each.values()]) for each in by_set.values()]

    def there(name: str, take: Callable[[Row], Cell | PublishedNumber]) -> Callable[[Row], Cell | PublishedNumber]:
        return lambda row: take(by_set[name][row.lane.name]) if row.lane.name in by_set[name] else None

    def columns(name: str) -> Iterator[Spec]:
        title = report.header.request.text_set(name).title
        for column, take in (SPEED[1], printed(usual("speedup"), 2)):
            yield structs.replace(column, title=f"{title}: {column.title}"), there(name, take)

    def texts(row: Row) -> str:
        statuses = [status(each[row.lane.name]) for each in by_set.values() if row.lane.name in each]
        return " / ".join(dict.fromkeys(statuses))

    yield from table(
        "data_sets",
        f"Data sets: speed relative to {AR}",
        "Speed relative to plain decoding of the same prompts, by data set.",
        list(every.values()),
        [lane_name(), *(spec for name in by_set for spec in columns(name)), words("text", texts)],
        notes=(*dict.fromkeys(chain.from_iterable(others)), *notes),
        usual_length=LENGTH,
    )
