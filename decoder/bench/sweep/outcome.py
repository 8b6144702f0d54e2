"""Results of one setting. Knows neither how it is measured nor where it is kept."""

from typing import TypeAlias

import msgspec

from decoder.bench.statistics import Median


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Setting whose texts equal ar's, near ties aside: medians over prompts, speeds over prompts with equal texts."""

    speed: Median
    """Speed over ar's, turn by turn; the sweep maximises its median."""
    over_reference: Median | None
    """Speed over the reference's; None where the reference's text differs from ar's."""
    tokens_per_second: float
    tokens_per_round: float
    """Mean committed tokens a round, L-bar."""
    acceptance_rate: float | None
    """Accepted over drafted nodes; None where nothing was drafted."""
    nodes_per_round: float
    rounds: float
    """Rounds a text."""
    round_ms: float
    disturbed: int
    """Turns in which threads waited too long for a processor."""
    near_ties: int = 0
    """Prompts whose text differs from ar's by a near tie."""


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """Setting without a speed."""

    reason: str


Result: TypeAlias = Outcome | Refused
