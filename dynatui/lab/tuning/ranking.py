"""Result of a ranking of drafts. This module does not import torch."""

from collections.abc import Mapping

import msgspec

from decoder.analysis.bottleneck import Bottleneck
from decoder.analysis.interval import Interval

METHODS = ("linear", "auto")
"""Methods with which every draft is measured: `linear` with the draft's best chain length, and `auto`."""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """Result for one draft."""

    name: str
    agreement: float
    """Share of the target's greedy tokens that equal the draft's most probable token."""
    cost_ratio: float
    """Time of a draft pass of one row divided by the time of a target pass of one row."""
    chain: int
    """Length of the chain with the highest expected speed; 0 if no chain is faster than plain decoding."""
    expected: float
    """Expected speed-up of this chain over plain decoding; see `expected_speedup`."""
    measured: Mapping[str, Interval | None]
    """Measured speed-up over plain decoding, by method; None if each text differed from the text of plain decoding."""
    limits: Bottleneck | None
    """Bottleneck of the faster of the two methods; None if this method has too few rounds."""
    fastest: str
    """Name of the faster of the two methods."""


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """All usable drafts, the fastest first, and the reasons why the other drafts cannot be used."""

    target: str
    device: str
    dtype: str
    prompts: int
    max_new_tokens: int
    drafts: list[Draft]
    refused: dict[str, str]
    """Reasons why drafts are unusable, by name of the draft."""
