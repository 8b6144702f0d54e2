"""Parts of a long run: cases, each counted in units, and the results of their counts.

Units are independent of each other and of their order, so a run can stop after any of them and continue later.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Counts = Mapping[str, float]


@dataclass(frozen=True)
class Verdict:
    """Result of a case's counts."""

    right: bool
    """Whether the result is as expected; for a mistake, whether it is rejected."""
    figures: tuple[str, ...]
    """Values for the columns of the case's group."""


@dataclass(frozen=True)
class Case:
    """A case of a long run."""

    name: str
    setting: str
    """Full description of the decoding; counts saved with another description are not continued."""
    units: int
    block: int
    """Number of units between two saves."""
    count: Callable[[range], Counter[str]]
    judge: Callable[[Counts], Verdict]


@dataclass(frozen=True)
class Group:
    """Cases of one kind, which form a table of the report."""

    title: str
    about: str
    columns: tuple[str, ...]
    cases: tuple[Case, ...]
