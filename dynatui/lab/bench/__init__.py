"""Benchmarks: methods and baselines decode the same texts in turn, or rounds with trees of given sizes are timed.

Fields of requests, and progress, which all measurements share, are defined in this module, which imports no torch.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import msgspec

if TYPE_CHECKING:
    from decoder.models.pair import Pair


Note: TypeAlias = Callable[[str], None]
"""Function that receives one progress line."""


class PairRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of every request; those of the pair are empty until the pair is loaded."""

    target: str = ""
    draft: str = ""
    device: str = ""
    dtype: str = ""
    draft_dtype: str = ""
    seed: int


def differing(one: msgspec.Struct, other: msgspec.Struct) -> list[str]:
    """Names of the fields whose values differ in JSON."""
    mine, theirs = (msgspec.json.decode(msgspec.json.encode(each)) for each in (one, other))
    return [name for name, value in mine.items() if theirs[name] != value]


def pair_names(pair: "Pair") -> dict[str, Any]:
    """Values of the fields of `PairRequest` except `seed`."""
    return {
        "target": pair.target_name,
        "draft": pair.draft_name,
        "device": pair.device,
        "dtype": pair.dtype,
        "draft_dtype": pair.draft_dtype,
    }


R = TypeVar("R")


@dataclass(frozen=True)
class Progress:
    line: str
    share: float
    """Share of the work that is done, from 0 to 1."""


Show: TypeAlias = Callable[[Iterator[Progress]], Iterable[Progress]]
"""Function that displays the progress after each step, and yields it."""


@dataclass(frozen=True)
class Done(Generic[R]):
    report: R
    interrupted: bool


def interrupted(steps: Iterable[Progress]) -> bool:
    """Runs the steps of a measurement; returns whether KeyboardInterrupt ended it early."""
    try:
        for _ in steps:
            pass
    except KeyboardInterrupt:
        return True
    return False
