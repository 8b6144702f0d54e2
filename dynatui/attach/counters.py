"""Increase of a server's counters between two pages: over all labels, and from 0 after a counter fell."""

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from itertools import zip_longest
from typing import Any

from dynatui.attach.events import MOST_POSITIONS
from dynatui.attach.exposition import LARGEST as MOST_COUNTED
from dynatui.attach.exposition import Labels, Page, Series
from dynatui.attach.servers import Kind, Names


@dataclass(frozen=True)
class Counts:
    """Counts of an interval; None for a count that the server does not report."""

    drafts: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    generated: int | None = None
    accepted_at: tuple[int, ...] = ()
    """Counts by draft position; empty if not reported."""
    drafted_at: tuple[int, ...] = ()

    def plus(self, other: "Counts") -> "Counts":
        """A count that is None in one interval is the other interval's."""
        return Counts(*map(_sum, astuple(self), astuple(other)))


def restarted(kind: Kind, before: Page, after: Page) -> bool:
    """Whether any counter fell."""
    pairs = ((before.get(name, {}), after.get(name, {})) for name in kind.counters)
    return any(value < earlier[labels] for earlier, now in pairs for labels, value in now.items() if labels in earlier)


def counted(kind: Kind, before: Page, after: Page) -> Counts:
    def grown(names: Names) -> int | None:
        if not names or any(name not in after for name in names):
            return None
        return _count(sum(increase(before.get(name, {}), after[name]) for name in names))

    drafted_at = by_position(kind.drafted_at, kind.position, before, after)
    return Counts(
        drafts=grown(kind.drafts) if kind.drafts else next(iter(drafted_at), None),
        drafted=grown(kind.drafted),
        accepted=grown(kind.accepted),
        generated=grown(kind.generated),
        accepted_at=by_position(kind.accepted_at, kind.position, before, after),
        drafted_at=drafted_at,
    )


def by_position(name: str, label: str, before: Page, after: Page) -> tuple[int, ...]:
    earlier, later = (_split(page.get(name, {}), label) for page in (before, after))
    return tuple(
        _count(increase(earlier.get(place, {}), later.get(place, {}))) for place in range(max(later, default=-1) + 1)
    )


def remembered(before: Page, after: Page) -> Page:
    """Latest value of every series; one missing from `after`, as of a replica, keeps its value.

    When a metric has a new series, all its missing series are dropped, so that the memory stays bounded.
    """
    return {name: _latest_series(before.get(name, {}), after.get(name, {})) for name in {**before, **after}}


def _latest_series(before: Series, after: Series) -> Series:
    return after if after.keys() - before.keys() else {**before, **after}


def increase(before: Series, after: Series) -> float:
    """New series are taken to continue the series that disappeared, so that the two sums are compared."""
    stayed = sum(_step(before[labels], value) for labels, value in after.items() if labels in before)
    removed = sum(value for labels, value in before.items() if labels not in after)
    added = sum(value for labels, value in after.items() if labels not in before)
    return stayed + _step(removed, added)


def _step(before: float, after: float) -> float:
    return after - before if after >= before else after


def _split(series: Series, label: str) -> Mapping[int, Series]:
    places = dict[int, dict[Labels, float]]()
    for labels, value in series.items():
        text = dict(labels).get(label, "")
        if text.isdecimal() and len(text) <= len(str(MOST_POSITIONS)) and int(text) < MOST_POSITIONS:
            places.setdefault(int(text), {})[labels] = value
    return places


def _sum(one: Any, other: Any) -> Any:
    if isinstance(one, tuple):
        return tuple(_count(a + b) for a, b in zip_longest(one, other, fillvalue=0))
    return other if one is None else one if other is None else _count(one + other)


def _count(number: float) -> int:
    return min(round(number), MOST_COUNTED)
