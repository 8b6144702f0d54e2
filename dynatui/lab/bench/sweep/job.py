"""Options of a sweep, and its request: logs of equal requests belong together. Does not import torch."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from decoder.errors import require
from decoder.knobs import TunableParameters
from decoder.prompts.prompt import AnyPrompt
from dynatui.lab.bench.on_pair import OnPair, PairRequest, pair_names
from dynatui.lab.bench.sweep.spaces import Axes, Setting, base_named, space_named

if TYPE_CHECKING:
    from decoder.models.pair import Pair


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
        return space_named(self.space).grid(self.axes)


@dataclass(frozen=True)
class OnSettings(OnPair):
    """Options of a sweep, before models are loaded; the request adds the names of the loaded pair."""

    space: str
    axes: Axes
    prompts: tuple[AnyPrompt, ...]
    preset: str | None = None
    """Name of the preset for parameters that the sweep does not vary; None selects the paper's values."""
    repeats: int = 1
    seed: int = 0

    @property
    def base(self) -> TunableParameters:
        return base_named(space_named(self.space), self.preset)

    def request(self, pair: "Pair | None" = None) -> SweepRequest:
        """Request of the sweep for a loaded pair; if `pair` is None, the result only serves to validate the options.

        Raises:
            ConfigError: A parameter value of a setting is out of bounds.
        """
        request = SweepRequest(
            space=self.space,
            axes=self.axes,
            reference=msgspec.to_builtins(self.base),
            **pair_names(pair),
            prompts=self.prompts,
            repeats=self.repeats,
            seed=self.seed,
        )
        for setting in request.settings:
            space_named(self.space).config(self.base, setting)
        return request
