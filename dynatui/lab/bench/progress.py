"""Progress of a measurement after each step, and the measurement's report at the end or after an interrupt.

This module does not import torch.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

R = TypeVar("R")


@dataclass(frozen=True)
class Progress:
    """Progress of a measurement: a line of text and the finished share."""

    line: str
    share: float
    """Share of the work that is done, in [0, 1]."""


Show: TypeAlias = Callable[[Iterator[Progress]], Iterable[Progress]]
"""Function that displays the progress after each step, and then yields this progress."""


@dataclass(frozen=True)
class Done(Generic[R]):
    """Report of a measurement, and whether the measurement was interrupted."""

    report: R
    interrupted: bool


def interrupted(steps: Iterable[Progress]) -> bool:
    """Runs all steps of a measurement; returns whether an interrupt ended the measurement before the last step."""
    try:
        for _ in steps:
            pass
    except KeyboardInterrupt:
        return True
    return False
