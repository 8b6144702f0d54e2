"""Request of a sweep: logs of equal requests belong together, even if started separately. Knows no models."""

from typing import Any

from decoder.errors import require
from decoder.prompts.prompt import AnyPrompt
from dynatui.lab.bench.on_pair import PairRequest
from dynatui.lab.bench.sweep.spaces import Axes, Setting, space_named


class SweepRequest(PairRequest, frozen=True, kw_only=True):
    """Everything that determines the results of a sweep."""

    space: str
    axes: Axes
    reference: dict[str, Any]
    """Base parameters of the method. The reference uses them unchanged; a setting changes parameters on the axes."""
    prompts: tuple[AnyPrompt, ...]
    repeats: int

    def __post_init__(self) -> None:
        require(self.repeats >= 1, f"--repeats is {self.repeats}; give 1 or more")

    @property
    def settings(self) -> tuple[Setting, ...]:
        """All settings of the sweep's grid."""
        return space_named(self.space).grid(self.axes)
