"""Data frame of a measurement, with one row for each text of each lane, and the report with means over prompts, from
which tables, figures, claims and pages are made.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec
import pandas as pd
from msgspec import structs

from decoder.analysis.interval import Interval
from dynatui.lab.bench.contenders import BASELINE
from dynatui.lab.bench.data_sets.prompts import TextSet
from dynatui.lab.bench.paper import published
from dynatui.lab.bench.paper.experiments import paper_depth
from dynatui.lab.bench.paper.published import DYNATREE, WIKITEXT, PublishedNumber
from dynatui.lab.bench.paper.records import (
    Header,
    PaperExperiment,
    PaperLane,
    PaperRequest,
    PromptResult,
    Resumed,
    has_text_of,
)
from dynatui.lab.bench.protocol import disturbed
from dynatui.lab.frame import frame, means


class LaneSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one lane in one experiment at one text length."""

    experiment: str
    data_set: str
    most: int
    """Maximum prompt length, in the experiment's unit."""
    length: int
    """Text length T, in new tokens."""
    lane: str
    prompts: int
    same: int
    """Number of prompts that count for speeds: the lane's text equals the text of `ar` or may differ by design."""
    stats: dict[str, Interval]
    """Means over prompts, with bootstrap intervals and standard deviations over prompts, of the figures `TIMES`,
    `COUNTS` and `POOLED`; unknown figures are missing.
    """


class PaperReport(msgspec.Struct, frozen=True, kw_only=True):
    header: Header = msgspec.field(name="begun")
    load_after: float | None
    complete: bool
    """Whether all blocks of the request were measured."""
    disturbed: int
    """Number of turns whose times are disturbed, because threads waited too long for a processor."""
    blocks: list[PromptResult]
    cells: list[LaneSummary]
    resumed: list[Resumed] = []

    def __post_init__(self) -> None:
        """Raises ValueError if parts of the report are inconsistent, for example because its file was edited."""
        request = self.header.request
        lanes, data_sets = {lane.name for lane in request.lanes}, {texts.name for texts in request.text_sets}
        for experiment in request.experiments:
            _require(lanes.issuperset(experiment.lanes), f"{experiment.name} has an unknown lane")
            _require(experiment.data_set in data_sets, f"{experiment.name} has an unknown data set")
            _require(bool(experiment.lengths), f"{experiment.name} has no length")
        lengths = [len(experiment.lengths) for experiment in request.experiments]
        for block in self.blocks:
            _require(0 <= block.experiment < len(lengths), "a block has an unknown experiment")
            whole = all(len(turn.at) == lengths[block.experiment] for turn in block.turns)
            _require(whole, "the figures of a turn do not match the lengths of its experiment")


def _require(holds: bool, otherwise: str) -> None:  # noqa: FBT001 - what must hold
    if not holds:
        raise ValueError(otherwise)


class Row(NamedTuple):
    """A lane in one experiment at one text length."""

    cell: LaneSummary
    lane: PaperLane
    experiment: PaperExperiment
    text_set: TextSet
    more: Mapping[str, Interval | float | None] = MappingProxyType({})
    """Figures that are computed from this row and other rows."""

    def paper(self, figure: str, *, exact: bool) -> PublishedNumber | None:
        """The paper's number for this lane: if `exact`, at the row's T and L_max; otherwise, at the setting of the
        paper's main results. None if the paper has no such number.
        """
        name, data_set = paper_row(self.experiment.name, self.lane), self.text_set.stands_for
        if not exact:
            return published.usual(name, data_set, figure)
        if self.experiment.unit != "characters":
            return None
        return published.at(name, data_set, figure, self.cell.length, self.experiment.most)


def rows(report: PaperReport, name: str, data_set: str | None = None) -> list[Row]:
    """Rows of all experiments with this name, ordered by prompt length, then by text length, then by lane."""
    request = report.header.request
    experiments = {(each.name, each.data_set, each.most): each for each in request.experiments}
    found = [
        Row(
            cell,
            request.lane(cell.lane),
            experiments[cell.experiment, cell.data_set, cell.most],
            request.text_set(cell.data_set),
        )
        for cell in report.cells
        if cell.experiment == name and data_set in (None, cell.data_set)
    ]
    return sorted(found, key=lambda row: (row.cell.most, row.cell.length))


def greatest(these: Iterable[Row], *fields: Literal["length", "most"]) -> list[Row]:
    """Rows with the greatest value of the first field and, of these rows, the greatest value of the next field."""
    kept = list(these)
    for field in fields:
        top = max((getattr(row.cell, field) for row in kept), default=0)
        kept = [row for row in kept if getattr(row.cell, field) == top]
    return kept


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


SPEED, SPEEDUP = "tokens_per_second", "speedup"
Points: TypeAlias = Sequence[tuple[float, Interval]]
"""Points (x, mean of the drawn quantity with its interval) of a curve, in ascending order of x."""
Table: TypeAlias = Mapping[tuple[float, float], float]
"""Values of a heat map by row and column."""


def data_sets(report: PaperReport, experiment: str) -> list[str]:
    """Names of the data sets that were measured in an experiment; the one that stands for WikiText-2 comes first."""
    measured = {cell.data_set for cell in report.cells if cell.experiment == experiment}
    text_sets = [each for each in report.header.request.text_sets if each.name in measured]
    return [each.name for each in sorted(text_sets, key=lambda each: each.stands_for != WIKITEXT)]


def rows_of(report: PaperReport, experiment: str) -> list[Row]:
    """Rows of an experiment on its first data set (WikiText-2 if measured), for figures of a single data set."""
    return [row for name in data_sets(report, experiment)[:1] for row in rows(report, experiment, name)]


def lanes_of(these: Iterable[Row]) -> list[PaperLane]:
    return list({row.lane.name: row.lane for row in these}.values())


def label(lane: PaperLane) -> str:
    """Name of the lane in the paper; the lane's own name if the paper does not have the lane."""
    return lane.paper_name or lane.name


def fastest(lanes: Iterable[PaperLane], these: Sequence[Row]) -> PaperLane | None:
    """Lane with the greatest mean speed-up in these rows; the first lane if no lane has a speed."""

    def mean_speedup(lane: PaperLane) -> float:
        return fmean([stat.value for _, stat in points(lane, these, SPEEDUP)] or [0.0])

    return max(lanes, key=mean_speedup, default=None)


def paper_lanes(these: Sequence[Row]) -> list[PaperLane]:
    """Lanes of the paper's four methods: AR, the fastest linear lane, the fastest fixed tree, and DynaTree."""
    lanes = lanes_of(these)
    groups = [[lane for lane in lanes if lane.method == method] for method in ("ar", "linear", "fixed")]
    groups.append([lane for lane in lanes if lane.paper_name == DYNATREE])
    return [leader for group in groups if (leader := fastest(group, these))]


def points(lane: PaperLane, these: Iterable[Row], key: str, along: Literal["length", "most"] = "length") -> Points:
    """Curve of the quantity `key` of a lane over the text length or the prompt length."""
    known = [row.cell for row in these if row.lane.name == lane.name and key in row.cell.stats]
    return [(getattr(cell, along), cell.stats[key]) for cell in known]


def stat_of(lane: PaperLane, these: Iterable[Row], key: str) -> Interval | None:
    """Quantity `key` in the lane's first row that has it."""
    return next((stat for _, stat in points(lane, these, key)), None)


def without(these: Sequence[Row], key: str) -> list[PaperLane]:
    """Lanes whose rows all lack the quantity `key`."""
    return [lane for lane in lanes_of(these) if not points(lane, these, key)]


def device(report: PaperReport) -> str:
    machine = report.header.machine
    return machine.accelerator or f"{machine.processor}, {machine.threads} of {machine.cores} cores"


def noise(report: PaperReport) -> str:
    """Sentence on disturbances by other processes: number of disturbed turns, and load averages."""
    turns = sum(len(block.turns) for block in report.blocks)
    loads = (report.header.machine.load_before, report.load_after)
    before, after = ("unknown" if load is None else f"{load:.1f}" for load in loads)
    return f"{report.disturbed} of {turns} turns were disturbed; system load {before} before the run, {after} after it"


CELL = ["experiment", "lane", "length"]
"""Columns whose values all texts of a cell share."""
TIMES = ["tokens_per_second", "speedup", "ttft_ms", "tpot_ms", "draft_ms", "verify_ms", "round_ms"]
"""Times and speeds; their means leave out prompts on which the text wrongly differs from the text of `ar`."""
COUNTS = [
    "paper_path_length",
    "path_length",
    "acceptance_rate",
    "depth_acceptance",
    "paper_acceptance",
    "rounds",
    "nodes_per_round",
    "target_forwards_per_round",
    "draft_forwards_per_round",
    "peak_mb",
    "kv_mb",
    "distinct_8grams",
]
POOLED = {"tokens_per_round": ("committed", "rounds")}
"""Figures that are quotients of sums over all prompts, rather than means over prompts: (numerator, denominator)."""
NUMBERS = [
    *("rounds", "committed", "drafted", "target_forwards", "draft_forwards", "tokens_per_round", "path_length"),
    *("acceptance_rate", "depth_acceptance", "decode_s", "tokens_per_second", "ttft_s", "tpot_s", "draft_s"),
    *("verify_s", "speedup", "peak_bytes", "distinct_8grams", "kv_bytes", "depth"),
]
"""Columns of the log that hold numbers."""


def texts(header: Header, blocks: Sequence[PromptResult]) -> pd.DataFrame:
    """One row per text. Columns: `CELL` (with the index of the experiment), `prompt`, `repeat`, the figures of the log,
    `TIMES`, `COUNTS`, and `same`: whether the text equals the text of `ar` or may differ by design.
    """
    rows = frame(_rows(header.request, blocks), NUMBERS)
    if rows.empty:
        return rows
    return rows.assign(
        ttft_ms=rows.ttft_s * 1e3,
        tpot_ms=rows.tpot_s * 1e3,
        draft_ms=rows.draft_s * 1e3 / rows.rounds,
        verify_ms=rows.verify_s * 1e3 / rows.rounds,
        round_ms=rows.decode_s * 1e3 / rows.rounds,
        paper_path_length=rows.tokens_per_round,
        paper_acceptance=rows.committed / (rows.rounds * rows.depth),
        nodes_per_round=rows.drafted / rows.rounds,
        target_forwards_per_round=rows.target_forwards / rows.rounds,
        draft_forwards_per_round=rows.draft_forwards / rows.rounds,
        peak_mb=rows.peak_bytes * 1e-6,
        kv_mb=rows.kv_bytes / 1e6,
    )


def _rows(request: PaperRequest, blocks: Sequence[PromptResult]) -> Iterator[dict[str, Any]]:
    lanes = {lane.name: lane for lane in request.lanes}
    for block in blocks:
        lengths = request.experiments[block.experiment].lengths
        plain = next(turn.at for turn in block.turns if turn.lane == BASELINE)
        for turn in block.turns:
            lane = lanes[turn.lane]
            for length, figures, ar in zip(lengths, turn.at, plain, strict=True):
                yield structs.asdict(figures) | {
                    "experiment": block.experiment,
                    "lane": lane.name,
                    "length": length,
                    "prompt": block.prompt,
                    "repeat": block.repeat,
                    "same": lane.own_text or has_text_of(figures, ar),
                    "depth": paper_depth(lane),
                    "kv_bytes": turn.kv_bytes if length == lengths[-1] else None,  # known for whole texts only
                }


def report(header: Header, blocks: Sequence[PromptResult], resumed: Sequence[Resumed] = ()) -> PaperReport:
    return PaperReport(
        header=header,
        load_after=blocks[-1].load if blocks else None,
        complete=len(blocks) == header.request.block_count,
        disturbed=disturbed(turn.waited for each in blocks for turn in each.turns),
        blocks=list(blocks),
        cells=list(_cells(header.request, texts(header, blocks))) if blocks else [],
        resumed=list(resumed),
    )


def _cells(request: PaperRequest, rows: pd.DataFrame) -> Iterator[LaneSummary]:
    same = rows.groupby([*CELL, "prompt"]).same
    timed = rows.assign(**rows[TIMES].where(same.transform("all")))
    stats = means(timed, CELL, (*TIMES, *COUNTS), request.seed, POOLED)
    prompts = same.all().groupby(CELL).agg(["size", "sum"])
    for number, experiment in enumerate(request.experiments):
        for lane in experiment.lanes:
            for length in experiment.lengths:
                if (key := (number, lane, length)) in stats:
                    count, same_count = prompts.loc[key]
                    yield LaneSummary(
                        experiment=experiment.name,
                        data_set=experiment.data_set,
                        most=experiment.most,
                        length=length,
                        lane=lane,
                        prompts=int(count),
                        same=int(same_count),
                        stats=stats[key],
                    )
