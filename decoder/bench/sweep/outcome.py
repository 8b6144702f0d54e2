"""What came of measuring one setting. Knows neither how it was measured nor where it is kept."""

from typing import TypeAlias

import msgspec

from decoder.bench.statistics import Median


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A setting whose texts equal ar's, but for near ties: medians over prompts, speeds over those of equal texts."""

    speed: Median
    """Over ar's, turn by turn; the median is what is maximised."""
    over_reference: Median | None
    """The same over the reference's; None: the reference wrote another text than ar."""
    tokens_per_second: float
    tokens_per_round: float
    """L-bar."""
    acceptance_rate: float | None
    """Accepted over drafted nodes; None: nothing was drafted."""
    nodes_per_round: float
    rounds: float
    """A text."""
    round_ms: float
    disturbed: int
    """Turns in which threads waited too long for a processor."""
    near_ties: int = 0
    """Prompts whose text became another one where two tokens were as good as equal."""


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that has no speed."""

    reason: str


Result: TypeAlias = Outcome | Refused
