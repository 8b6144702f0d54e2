"""Request of a measurement: texts, lanes, and experiments, in which lanes decode the same prompts. Knows no models."""

from typing import Any, Literal

import msgspec

from decoder.bench.data_sets.text_set import TextSet

Unit = Literal["characters", "tokens"]
"""Unit of a prompt's length; the paper's L_max counts characters."""


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """Method with its parameters, a row of the tables."""

    name: str
    """Unique among the lanes of a measurement: ar, linear K=8, fixed D8 B3, phase 2."""
    method: str
    """Registered method; or generate or assisted of transformers."""
    family: str
    """Family of lanes, drawn in one colour: ar, linear, fixed, dynatree, hf, ..."""
    parameters: dict[str, Any]
    """All parameters by name."""
    paper_name: str | None = None
    """Row of the paper beside it; None where there is none, see `published`."""
    own_text: bool = False
    """Whether its text may differ from ar's by design; texts are then not compared."""


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """Lanes that decode the same prompts of one data set, in turns."""

    name: str
    """Name: main, prompt_length, sensitivity or fixed_trees."""
    data_set: str
    """Name of a `TextSet`."""
    most: int
    """Longest prompt, in `unit`."""
    unit: Unit = "characters"
    prompts: int
    """Number of prompts, from the beginning of the data set."""
    lanes: tuple[str, ...]
    """Names of lanes, ar first."""
    lengths: tuple[int, ...]
    """New tokens after which figures are taken, rising: a greedy text of T tokens begins with all shorter ones, so one
    run gives all figures. The last is the length that is decoded."""
    repeats: int = 1


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides the measurement; only the same request resumes a log."""

    target: str
    draft: str
    device: str
    dtype: str
    draft_dtype: str
    seed: int
    temperature: float
    top_p: float
    stops_at_eos: bool
    """Whether the end-of-text token ends a text; False in the paper."""
    warm_up: int
    """Prompts that every lane decodes uncounted before each experiment."""
    text_sets: tuple[TextSet, ...]
    """Data sets, cut to the parts that are read."""
    lanes: tuple[Lane, ...]
    experiments: tuple[Experiment, ...]

    @property
    def block_count(self) -> int:
        """Number of blocks over all experiments."""
        return sum(each.prompts * each.repeats for each in self.experiments)

    def lane(self, name: str) -> Lane:
        """Lane of this name."""
        return next(lane for lane in self.lanes if lane.name == name)

    def text_set(self, name: str) -> TextSet:
        """Data set of this name."""
        return next(each for each in self.text_sets if each.name == name)
