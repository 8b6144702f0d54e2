"""What a ranking of drafts tells. Imports no torch."""

from collections.abc import Mapping

import msgspec

from decoder.analysis.bottleneck import Bottleneck
from decoder.analysis.interval import Interval

METHODS = ("linear", "auto")
"""What every draft is measured with: its best chain, and as many guesses as pay."""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """What was found of one draft."""

    name: str
    agreement: float
    """Share of the target's greedy tokens that the draft thinks likeliest too, on texts of the prompts."""
    cost_ratio: float
    """Time of a draft pass of one row over that of a target pass of one row."""
    chain: int
    """The length at which a chain is expected to be fastest; 0: none pays."""
    expected: float
    """Its speed over plain decoding, by `expected_speedup`."""
    measured: Mapping[str, Interval | None]
    """Over plain decoding, by method; None where the text was another on every prompt."""
    limits: Bottleneck | None
    """Of the faster method; None where too few rounds tell anything."""
    fastest: str
    """That method."""


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """Every draft, the fastest first, and those that cannot be used."""

    target: str
    device: str
    dtype: str
    prompts: int
    max_new_tokens: int
    drafts: list[Draft]
    refused: dict[str, str]
    """Why, by name."""
