"""Report of a measurement: a data frame with one row for each text of each lane, and means over prompts, from which
tables, figures, claims and pages are made.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from msgspec import structs

from decoder.analysis.interval import Interval
from dynatui.lab.bench.contenders import BASELINE
from dynatui.lab.bench.data_sets import TextSet
from dynatui.lab.bench.paper.experiments import paper_depth
from dynatui.lab.bench.paper.records import Header, PaperExperiment, PaperLane, PaperRequest, PromptResult, Resumed
from dynatui.lab.bench.protocol import disturbed
from dynatui.lab.frame import frame, means

SPEED, SPEEDUP = "tokens_per_second", "speedup"
CELL = ["experiment", "lane", "length"]
"""Columns whose values all texts of a row share."""
TIMES = [SPEED, SPEEDUP, "ttft_ms", "tpot_ms", "draft_ms", "verify_ms", "round_ms"]
"""Times and speeds; their means leave out prompts on which the text wrongly differs from the text of `ar`."""
COUNTS = [
    *("paper_path_length", "path_length", "acceptance_rate", "depth_acceptance", "paper_acceptance", "rounds"),
    *("nodes_per_round", "target_forwards_per_round", "draft_forwards_per_round", "peak_mb", "kv_mb"),
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


@dataclass(frozen=True)
class Row:
    """Means of one lane in one experiment at one text length."""

    experiment: PaperExperiment
    lane: PaperLane
    text_set: TextSet
    length: int
    """Text length T, in new tokens."""
    prompts: int
    same: int
    """Number of prompts that count for speeds, since the text equals the text of `ar` or may differ by design."""
    stats: Mapping[str, Interval]
    """Means over prompts, with bootstrap intervals and standard deviations over prompts, of the figures `TIMES`,
    `COUNTS` and `POOLED`; unknown figures are missing.
    """


@dataclass(frozen=True)
class PaperReport:
    header: Header
    blocks: Sequence[PromptResult]
    resumed: Sequence[Resumed]
    texts: pd.DataFrame
    """One row per text. Columns: `CELL` (with the index of the experiment), `prompt`, `repeat`, the figures of the log,
    `TIMES`, `COUNTS`, and `same`: whether the text equals the text of `ar` or may differ by design.
    """
    rows: Sequence[Row]

    @property
    def request(self) -> PaperRequest:
        return self.header.request

    @property
    def load_after(self) -> float | None:
        return self.blocks[-1].load if self.blocks else None

    @property
    def complete(self) -> bool:
        """Whether all blocks of the request were measured."""
        return len(self.blocks) == self.request.block_count

    @property
    def disturbed(self) -> int:
        """Number of turns whose times are disturbed, because threads waited too long for a processor."""
        return disturbed(turn.waited for each in self.blocks for turn in each.turns)

    def as_json(self) -> dict[str, Any]:
        """Content of `report.json`."""
        cells = [
            {
                "experiment": row.experiment.name,
                "data_set": row.text_set.name,
                "most": row.experiment.most,
                "length": row.length,
            }
            | {"lane": row.lane.name, "prompts": row.prompts, "same": row.same, "stats": row.stats}
            for row in self.rows
        ]
        known = {"begun": self.header, "load_after": self.load_after, "complete": self.complete}
        return known | {
            "disturbed": self.disturbed,
            "blocks": self.blocks,
            "cells": cells,
            "resumed": self.resumed,
        }


def report(header: Header, blocks: Sequence[PromptResult], resumed: Sequence[Resumed] = ()) -> PaperReport:
    every = frame(_texts(header.request, blocks), NUMBERS)
    rows = []
    if blocks:
        every = every.assign(
            ttft_ms=every.ttft_s * 1e3,
            tpot_ms=every.tpot_s * 1e3,
            draft_ms=every.draft_s * 1e3 / every.rounds,
            verify_ms=every.verify_s * 1e3 / every.rounds,
            round_ms=every.decode_s * 1e3 / every.rounds,
            paper_path_length=every.tokens_per_round,
            paper_acceptance=every.committed / (every.rounds * every.depth),
            nodes_per_round=every.drafted / every.rounds,
            target_forwards_per_round=every.target_forwards / every.rounds,
            draft_forwards_per_round=every.draft_forwards / every.rounds,
            peak_mb=every.peak_bytes * 1e-6,
            kv_mb=every.kv_bytes / 1e6,
        )
        rows = list(_rows(header.request, every))
    return PaperReport(header, blocks, resumed, every, rows)


def _texts(request: PaperRequest, blocks: Sequence[PromptResult]) -> Iterator[dict[str, Any]]:
    lanes = {lane.name: lane for lane in request.lanes}
    for block in blocks:
        lengths = request.experiments[block.experiment].lengths
        plain = next(turn.at for turn in block.turns if turn.lane == BASELINE)
        for turn in block.turns:
            lane = lanes[turn.lane]
            for length, figures, ar in zip(lengths, turn.at, plain, strict=True):
                same = figures.identical_to_ar is not False and figures.committed == ar.committed
                yield structs.asdict(figures) | {
                    "experiment": block.experiment,
                    "lane": lane.name,
                    "length": length,
                    "prompt": block.prompt,
                    "repeat": block.repeat,
                    "same": lane.own_text or same,
                    "depth": paper_depth(lane),
                    "kv_bytes": turn.kv_bytes if length == lengths[-1] else None,  # known for whole texts only
                }


def _rows(request: PaperRequest, every: pd.DataFrame) -> Iterator[Row]:
    same = every.groupby([*CELL, "prompt"]).same
    timed = every.assign(**every[TIMES].where(same.transform("all")))
    stats = means(timed, CELL, (*TIMES, *COUNTS), request.seed, POOLED)
    prompts = same.all().groupby(CELL).agg(["size", "sum"])
    for number, experiment in enumerate(request.experiments):
        for lane in map(request.lane, experiment.lanes):
            for length in experiment.lengths:
                if (key := (number, lane.name, length)) in stats:
                    count, same_count = map(int, prompts.loc[key])
                    text_set = request.text_set(experiment.data_set)
                    yield Row(experiment, lane, text_set, length, count, same_count, stats[key])


def texts_of(report: PaperReport, experiment: PaperExperiment, place: int = -1) -> pd.DataFrame:
    """Texts of an experiment, cut to the length at `place` in its lengths."""
    texts, number = report.texts, report.request.experiments.index(experiment)
    return texts[(texts.experiment == number) & (texts.length == experiment.lengths[place])]


def rows(report: PaperReport, name: str, data_set: str | None = None) -> list[Row]:
    """Rows of all experiments with this name, ordered by prompt length, then by text length, then by lane."""
    found = [row for row in report.rows if row.experiment.name == name and data_set in (None, row.text_set.name)]
    return sorted(found, key=lambda row: (row.experiment.most, row.length))


def longest(these: Iterable[Row]) -> list[Row]:
    """Rows of the greatest text length."""
    kept = list(these)
    length = max((row.length for row in kept), default=0)
    return [row for row in kept if row.length == length]


def device(report: PaperReport) -> str:
    machine = report.header.machine
    return machine.accelerator or f"{machine.processor}, {machine.threads} of {machine.cores} cores"


def noise(report: PaperReport) -> str:
    """Sentence on disturbances by other processes: number of disturbed turns, and load averages."""
    turns = sum(len(block.turns) for block in report.blocks)
    loads = (report.header.machine.load_before, report.load_after)
    before, after = ("unknown" if load is None else f"{load:.1f}" for load in loads)
    return f"{report.disturbed} of {turns} turns were disturbed; system load {before} before the run, {after} after it"
