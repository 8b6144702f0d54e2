"""Request of a sweep; equal requests belong to one study, even if started separately.

This module does not depend on the database.
"""

from hashlib import sha256
from typing import Any

import msgspec

from decoder.errors import require
from decoder.prompts.prompt import AnyPrompt
from dynatui.lab.bench.sweep.spaces import Axes, Setting, space_named

DIGITS = 12
"""Number of hexadecimal digits of the SHA-256 that a study's name contains."""


class SweepRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that determines the results of a sweep; different requests belong to different studies.

    The order of the fields determines the study's name; to keep this order, the class repeats the fields of
    `PairRequest` in the middle instead of inheriting them.
    """

    space: str
    axes: Axes
    reference: dict[str, Any]
    """Base parameters of the method. The reference uses them unchanged; a setting changes parameters on the axes."""
    target: str
    draft: str
    device: str
    dtype: str
    draft_dtype: str
    prompts: tuple[AnyPrompt, ...]
    repeats: int
    seed: int

    def __post_init__(self) -> None:
        require(self.repeats >= 1, f"--repeats is {self.repeats}; give 1 or more")

    @property
    def settings(self) -> tuple[Setting, ...]:
        """All settings of the sweep's grid."""
        return space_named(self.space).grid(self.axes)

    @property
    def study(self) -> str:
        """Default name of this request's study: the grid's name and a digest of the request."""
        return f"{self.space}-{sha256(msgspec.json.encode(self, order='deterministic')).hexdigest()[:DIGITS]}"
