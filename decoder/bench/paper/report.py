"""Report of a whole measurement, from which tables, figures, claims and pages are made, and nothing else."""

import msgspec

from decoder.analysis.interval import Interval
from decoder.bench.paper.records import Block, Header, Resumed

FIGURE_KEYS: dict[str, str] = {
    "tokens_per_second": "tokens/s",
    "speedup": "x ar, in the same block",
    "ttft_ms": "ms to the first tokens, this method's own prefill and first round",
    "tpot_ms": "ms a token after the prompt",
    "tokens_per_round": "L-bar: tokens of all prompts over rounds of all prompts",
    "paper_path_length": "l-bar as the paper's code has it: mean over prompts of tokens over rounds, with the bonus",
    "path_length": "accepted tokens a round, no bonus",
    "acceptance_rate": "accepted over drafted nodes",
    "depth_acceptance": "accepted depth over the depth of the verified tree",
    "paper_acceptance": "the paper's: committed over rounds x (D0 + 2), of linear over rounds x K",
    "rounds": "rounds a text",
    "nodes_per_round": "drafted nodes verified a round",
    "target_forwards_per_round": "target passes a round",
    "draft_forwards_per_round": "draft passes a round",
    "draft_ms": "ms of drafting a round",
    "verify_ms": "ms of verification a round",
    "round_ms": "ms a round",
    "peak_mb": "peak memory in MB: the device's on CUDA, on a CPU the process's",
    "kv_mb": "MB of keys and values of both models as allocated",
    "distinct_8grams": "share of distinct 8-grams",
}
"""Figures of a cell, with their meanings."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one lane of one experiment, at one length."""

    experiment: str
    data_set: str
    most: int
    """Longest prompt, in the experiment's unit."""
    length: int
    """New tokens: T."""
    lane: str
    prompts: int
    same: int
    """Prompts whose text equals ar's, or differs by design; the others have no speed."""
    stats: dict[str, Interval]
    """Means over prompts by `FIGURE_KEYS`, with bootstrap interval and standard deviation over prompts, as in the
    paper; unknown figures are missing."""


class PaperReport(msgspec.Struct, frozen=True, kw_only=True):
    """Header, blocks, and means over prompts."""

    header: Header = msgspec.field(name="begun")
    load_after: float | None
    complete: bool
    """Whether no block of the request is missing."""
    disturbed: int
    """Turns with threads that waited too long for a processor."""
    blocks: list[Block]
    cells: list[Cell]
    resumed: list[Resumed] = []
    """Resumptions by another commit or version."""

    def __post_init__(self) -> None:
        """Raises ValueError for inconsistent parts, as in an edited file."""
        request = self.header.request
        lanes, data_sets = {lane.name for lane in request.lanes}, {texts.name for texts in request.text_sets}
        for experiment in request.experiments:
            _require(lanes.issuperset(experiment.lanes), f"{experiment.name} has a lane that is none of all")
            _require(experiment.data_set in data_sets, f"{experiment.name} is on a data set that is none of all")
            _require(bool(experiment.lengths), f"{experiment.name} has no length")
        lengths = [len(experiment.lengths) for experiment in request.experiments]
        for block in self.blocks:
            _require(0 <= block.experiment < len(lengths), "a block is of no experiment")
            whole = all(len(turn.at) == lengths[block.experiment] for turn in block.turns)
            _require(whole, "a turn has not as many figures as its experiment has lengths")

    def cell(
        self, experiment: str, data_set: str, lane: str, *, length: int | None = None, most: int | None = None
    ) -> Cell | None:
        """Cell of these names, of the longest text and prompt where not given; None where there is none."""
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
