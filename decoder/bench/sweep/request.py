"""What decides a sweep: two that were asked for alike are one study, whoever starts them. Knows no database."""

from hashlib import sha256
from typing import Any

import msgspec

from decoder.bench.sweep.spaces import Axes, Setting, space_named
from decoder.errors import require

DIGITS = 12
"""Hexadecimal digits that tell a study's name from others of its space."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """All that decides what is measured; another question is another study."""

    space: str
    axes: Axes
    reference: dict[str, Any]
    """The parameters that settings change on their axes alone; with them the reference decodes beside each."""
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
        """The whole grid."""
        return space_named(self.space).grid(self.axes)

    @property
    def study(self) -> str:
        """The name of the study that answers it."""
        return f"{self.space}-{sha256(msgspec.json.encode(self, order='deterministic')).hexdigest()[:DIGITS]}"

    def differing(self, other: "Request") -> list[str]:
        """The names of what was asked differently."""
        mine, theirs = (msgspec.json.decode(msgspec.json.encode(each)) for each in (self, other))
        return [name for name, value in mine.items() if theirs[name] != value]
