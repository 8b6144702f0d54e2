"""Result of measuring one setting. This module does not depend on the measurement."""

from typing import TypeAlias

import msgspec

from dynatui.lab.bench.statistics import Median


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a setting whose texts equal those of plain decoding (`ar`), except after near ties of two logits.

    Numbers are medians over prompts; speeds leave out prompts whose text differs.
    """

    speed: Median
    """Speed relative to `ar` on the same prompt; settings are ranked by the median of this ratio over prompts."""
    over_reference: Median | None
    """Speed relative to the reference; None if there is no prompt on which setting and reference both have a speed."""
    tokens_per_second: float
    tokens_per_round: float
    """Mean number of committed tokens per round: the paper's L-bar."""
    acceptance_rate: float | None
    """Accepted nodes divided by drafted nodes; None if nothing was drafted."""
    nodes_per_round: float
    rounds: float
    """Rounds of drafting and verification per text."""
    round_ms: float
    disturbed: int
    """Number of decoded texts whose times are disturbed, because threads waited too long for a processor."""
    near_ties: int = 0
    """Number of prompts whose text differs from the text of `ar` after a near tie of two logits."""


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a setting that has no speed, with the reason."""

    reason: str


Result: TypeAlias = Outcome | Refused
