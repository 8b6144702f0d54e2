"""Progress of a measurement after each step, and the measurement's report at the end or after an interrupt.

This module does not import torch.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

R = TypeVar("R")


@dataclass(frozen=True)
class Progress:
    line: str
    share: float
    """Of the work that is done, in [0, 1]."""


Show: TypeAlias = Callable[[Iterator[Progress]], Iterable[Progress]]
"""Displays the progress after each step, and then yields it."""


@dataclass(frozen=True)
class Done(Generic[R]):
    report: R
    interrupted: bool


def interrupted(steps: Iterable[Progress]) -> bool:
    """Runs all steps of a measurement; returns whether an interrupt ended it before the last step."""
    try:
        for _ in steps:
            pass
    except KeyboardInterrupt:
        return True
    return False
