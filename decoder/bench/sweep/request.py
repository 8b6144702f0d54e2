"""Request of a sweep; equal requests are one study, whoever starts them. Knows no database."""

from hashlib import sha256
from typing import Any

import msgspec

from decoder.bench.sweep.spaces import Axes, Setting, space_named
from decoder.errors import require

DIGITS = 12
"""Hexadecimal digits of the digest in a study's name."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides the measurement; another request is another study."""

    space: str
    axes: Axes
    reference: dict[str, Any]
    """Parameters off the axes, with which the reference decodes beside each setting."""
    target: str
    draft: str
    device: str
    dtype: str
    draft_dtype: str
    prompts: tuple[str, ...]
    repeats: int
    seed: int

    def __post_init__(self) -> None:
        require(self.repeats >= 1, f"--repeats is {self.repeats}; give 1 or more")

    @property
    def settings(self) -> tuple[Setting, ...]:
        """All settings of the grid."""
        return space_named(self.space).grid(self.axes)

    @property
    def study(self) -> str:
        """Name of the study of this request."""
        return f"{self.space}-{sha256(msgspec.json.encode(self, order='deterministic')).hexdigest()[:DIGITS]}"

    def differing(self, other: "Request") -> list[str]:
        """Names of the fields that differ."""
        mine, theirs = (msgspec.json.decode(msgspec.json.encode(each)) for each in (self, other))
        return [name for name, value in mine.items() if theirs[name] != value]
