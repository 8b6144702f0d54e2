"""Report of a measurement: the only input of tables, figures, claims and pages."""

import msgspec

from decoder.analysis.interval import Interval
from dynatui.lab.bench.paper.records import Block, Header, Resumed

FIGURE_KEYS: dict[str, str] = {
    "tokens_per_second": "tokens/s",
    "speedup": "tokens/s relative to ar in the same block",
    "ttft_ms": "ms to the first tokens: prefill and first round of this method",
    "tpot_ms": "ms per token after the prompt",
    "tokens_per_round": "L-bar: tokens of all prompts divided by rounds of all prompts",
    "paper_path_length": "l-bar as in the paper's code: tokens per round with the bonus token, averaged over prompts",
    "path_length": "accepted tokens per round, without the bonus token",
    "acceptance_rate": "accepted nodes divided by drafted nodes",
    "depth_acceptance": "accepted depth divided by the depth of the verified tree",
    "paper_acceptance": "the paper's acceptance: committed tokens / (rounds x (D0 + 2)); for chains, "
    "committed tokens / (rounds x K)",
    "rounds": "rounds per text",
    "nodes_per_round": "drafted nodes verified per round",
    "target_forwards_per_round": "target passes per round",
    "draft_forwards_per_round": "draft passes per round",
    "draft_ms": "ms of drafting per round",
    "verify_ms": "ms of verification per round",
    "round_ms": "ms per round",
    "peak_mb": "peak memory in MB: of the GPU on CUDA, of the process on a CPU",
    "kv_mb": "MB allocated for the KV caches of both models",
    "distinct_8grams": "share of distinct 8-grams",
}
"""Meanings of the figures in a cell, by key."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
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
    """Number of prompts on which the lane's text equals the text of `ar` or may differ by design; speeds leave out all
    other prompts.
    """
    stats: dict[str, Interval]
    """Means over prompts for the keys of `FIGURE_KEYS`; unknown figures are missing.

    Each mean has a bootstrap interval and, as in the paper, the standard deviation over prompts.
    """


class PaperReport(msgspec.Struct, frozen=True, kw_only=True):
    """All results of a measurement: header, blocks, and means over prompts."""

    header: Header = msgspec.field(name="begun")
    load_after: float | None
    complete: bool
    """Whether all blocks of the request were measured."""
    disturbed: int
    """Number of turns whose times are disturbed, because threads waited too long for a processor."""
    blocks: list[Block]
    cells: list[Cell]
    resumed: list[Resumed] = []
    """Resumptions of the measurement by another commit or version of dynatui."""

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

    def cell(
        self, experiment: str, data_set: str, lane: str, *, length: int | None = None, most: int | None = None
    ) -> Cell | None:
        """Cell with these names, and with the text length `length` and the prompt length `most` if they are given.

        If several cells match, the cell with the greatest text length is returned, and among cells of this text length
        the cell with the greatest prompt length. If no cell matches, None is returned.
        """
        cells = [
            cell
            for cell in self.cells
            if (cell.experiment, cell.data_set, cell.lane) == (experiment, data_set, lane)
            and length in (None, cell.length)
            and most in (None, cell.most)
        ]
        return max(cells, key=lambda cell: (cell.length, cell.most), default=None)


def _require(holds: bool, otherwise: str) -> None:  # noqa: FBT001 - what must hold
    if not holds:
        raise ValueError(otherwise)
