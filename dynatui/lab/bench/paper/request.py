"""Request of a measurement. This module does not depend on models."""

from typing import Any, Literal

import msgspec

from dynatui.lab.bench.data_sets.text_set import TextSet
from dynatui.lab.bench.on_pair import PairRequest

Unit = Literal["characters", "tokens"]
"""Unit of prompt lengths; the paper's L_max counts characters."""


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """Lane: a decoding method with its parameters, shown as a row of the tables."""

    name: str
    """Unique name, such as `ar`, `linear K=8`, `fixed D8 B3` or `phase 2`."""
    method: str
    """Name of a registered method, or `generate` or `assisted`, which are methods of transformers."""
    family: str
    """Similar lanes, such as `linear`, `fixed` or `hf`; in figures, all lanes of a family have one colour."""
    parameters: dict[str, Any]
    paper_name: str | None = None
    """Corresponding row of the paper's tables, as named in `published`; None if there is none."""
    own_text: bool = False
    """Whether the lane's text may differ from the text of `ar` by design; if so, the texts are not compared."""


class PaperExperiment(msgspec.Struct, frozen=True, kw_only=True):
    """Experiment: lanes that decode the same prompts of one data set, one after the other on each prompt."""

    name: str
    """`main`, `prompt_length`, `sensitivity` or `fixed_trees`."""
    data_set: str
    most: int
    """Maximum prompt length, in `unit`."""
    unit: Unit = "characters"
    prompts: int
    """Number of prompts, the first of the data set."""
    lanes: tuple[str, ...]
    """Names; the first is `ar`, plain decoding."""
    lengths: tuple[int, ...]
    """Text lengths, in new tokens and ascending order, at which results are recorded; all texts have the last length.

    The first T tokens of a greedy text do not depend on its final length, so one decoding gives the results at all
    lengths.
    """
    repeats: int = 1


class PaperRequest(PairRequest, frozen=True, kw_only=True):
    """Everything that determines the results; a log can only be resumed with an equal request."""

    temperature: float
    top_p: float
    stops_at_eos: bool
    """Whether a text ends at the end-of-text token; the paper ignores the token (False)."""
    warm_up: int
    """Number of prompts that every lane decodes as warm-up before each experiment, without recording results."""
    text_sets: tuple[TextSet, ...]
    """Data sets, truncated to what the experiments read."""
    lanes: tuple[Lane, ...]
    experiments: tuple[PaperExperiment, ...]

    @property
    def block_count(self) -> int:
        return sum(each.prompts * each.repeats for each in self.experiments)

    def lane(self, name: str) -> Lane:
        return next(lane for lane in self.lanes if lane.name == name)

    def text_set(self, name: str) -> TextSet:
        return next(each for each in self.text_sets if each.name == name)
