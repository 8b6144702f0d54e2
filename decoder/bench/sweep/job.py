"""Request of a sweep, as it travels to worker processes. Imports no torch: workers do."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from decoder.bench.on_pair import OnPair, pair_names
from decoder.bench.sweep.request import Request
from decoder.bench.sweep.spaces import Axes, base_named, space_named
from decoder.knobs import TunableParameters

if TYPE_CHECKING:
    from decoder.models.pair import Pair


@dataclass(frozen=True)
class OnSettings(OnPair):
    """Options of a sweep; `Request` adds the names of the loaded pair."""

    space: str
    axes: Axes
    prompts: tuple[str, ...]
    preset: str | None = None
    """Preset of the parameters off the axes; None: the paper's."""
    repeats: int = 1
    seed: int = 0

    @property
    def base(self) -> TunableParameters:
        """Parameters off the axes."""
        return base_named(space_named(self.space), self.preset)

    def request(self, pair: "Pair | None" = None) -> Request:
        """Request for a loaded pair; without a pair, options are only checked.

        Raises:
            ConfigError: A setting is out of bounds.
        """
        request = Request(
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
