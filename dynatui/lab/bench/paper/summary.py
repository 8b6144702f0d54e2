"""Data frame of a measurement, with one row for each text of each lane, and the report with means over prompts."""

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
from msgspec import structs

from dynatui.lab.bench.contenders import BASELINE
from dynatui.lab.bench.paper.experiments import paper_depth
from dynatui.lab.bench.paper.records import Header, PaperRequest, PromptResult, Resumed, has_text_of
from dynatui.lab.bench.paper.report import LaneSummary, PaperReport
from dynatui.lab.bench.protocol import disturbed
from dynatui.lab.frame import frame, means

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
