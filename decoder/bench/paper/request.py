"""What is measured: texts, lanes, and experiments, in which lanes decode the same prompts. Knows no models."""

from typing import Any, Literal

import msgspec

from decoder.bench.data_sets.text_set import TextSet

Unit = Literal["characters", "tokens"]
"""What a prompt's length is counted in; the paper's L_max counts characters."""


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the tables: a method with its parameters."""

    name: str
    """Unique among the lanes of a measurement: ar, linear K=8, fixed D8 B3, phase 2."""
    method: str
    """Of the registry of methods; or generate or assisted, which are transformers'."""
    family: str
    """What it is one setting of; each family has one colour: ar, linear, fixed, dynatree, hf, ..."""
    parameters: dict[str, Any]
    """All its parameters."""
    paper_name: str | None = None
    """The row of the paper that it stands beside, where there is one: see `anchors`."""
    own_text: bool = False
    """Whether its text may differ from ar's by design; then they are not compared."""


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """Every one of some lanes decodes the same prompts of one data set, in turns."""

    name: str
    """main, prompt_length, sensitivity, fixed_trees."""
    data_set: str
    """The name of a `TextSet`."""
    most: int
    """Longest prompt, in `unit`."""
    unit: Unit = "characters"
    prompts: int
    """The first so many of the data set."""
    lanes: tuple[str, ...]
    """By name; ar is always the first."""
    lengths: tuple[int, ...]
    """New tokens after which figures are taken, rising: a greedy text of T tokens begins with all shorter ones, so one
    run gives the figures of each. The last is how many are decoded."""
    repeats: int = 1


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """All that decides what is measured; a stopped measurement goes on only with the same."""

    target: str
    draft: str
    device: str
    dtype: str
    draft_dtype: str
    seed: int
    temperature: float
    top_p: float
    stops_at_eos: bool
    """False, as in the paper: texts go on behind the end-of-text token."""
    warm_up: int
    """Prompts that every lane decodes without counting before each experiment."""
    text_sets: tuple[TextSet, ...]
    """As much of them as is read."""
    lanes: tuple[Lane, ...]
    experiments: tuple[Experiment, ...]

    @property
    def block_count(self) -> int:
        """How many blocks of turns all experiments have."""
        return sum(each.prompts * each.repeats for each in self.experiments)

    def lane(self, name: str) -> Lane:
        """The lane of a name."""
        return next(lane for lane in self.lanes if lane.name == name)

    def text_set(self, name: str) -> TextSet:
        """The data set of a name."""
        return next(each for each in self.text_sets if each.name == name)
