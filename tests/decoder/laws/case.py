"""What a long run is made of: cases, each counted in units, and what their counts say.

Units are independent of each other and of their order, so that a run can stop after any of them and go on later. Knows
neither what is counted nor files.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Counts = Mapping[str, float]


@dataclass(frozen=True)
class Verdict:
    """What the counts of a case say."""

    right: bool
    """Whether it is as it should be; of a mistake, whether it is rejected."""
    figures: tuple[str, ...]
    """In the columns of its group."""


@dataclass(frozen=True)
class Case:
    """Something to show."""

    name: str
    setting: str
    """What is decoded, in full: counts of another setting are not gone on with."""
    units: int
    block: int
    """Units between two savings."""
    count: Callable[[range], Counter[str]]
    judge: Callable[[Counts], Verdict]


@dataclass(frozen=True)
class Group:
    """Cases of one kind, a table of the report."""

    title: str
    about: str
    columns: tuple[str, ...]
    cases: tuple[Case, ...]
