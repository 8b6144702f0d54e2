"""Report of a measurement: the only input of tables, figures, claims and pages."""

import msgspec

from decoder.analysis.interval import Interval
from dynatui.lab.bench.paper.records import Header, PromptResult, Resumed


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
    `COUNTS` and `POOLED` of `summary`; unknown figures are missing.
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
