"""Options of a sweep, before models are loaded; this module does not import torch."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from decoder.knobs import TunableParameters
from decoder.prompts.prompt import AnyPrompt
from dynatui.lab.bench.on_pair import OnPair, pair_names
from dynatui.lab.bench.sweep.request import SweepRequest
from dynatui.lab.bench.sweep.spaces import Axes, base_named, space_named

if TYPE_CHECKING:
    from decoder.models.pair import Pair


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
        """Base parameters of the method; the sweep varies the parameters on its axes."""
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
