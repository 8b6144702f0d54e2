"""Every figure of a server, from what its counters grew by and what its gauges show, each defined here and only here.

    tokens_per_round         L-bar: 1 + accepted / drafts; where all tokens are generated in rounds, generated / drafts
    acceptance_rate          accepted / drafted
    acceptance_by_position   accepted there / drafts
    ..._per_second           the count / seconds

A gauge of the server comes first for its acceptance length and its speed, which counters tell only once a request is
done; and where there are no counters, for its acceptance rate. What cannot be known is None.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dynatui.attach.counters import Counts
from dynatui.attach.events import LARGEST, Figures
from dynatui.attach.exposition import Labels, Page, Series
from dynatui.attach.servers import Kind


@dataclass(frozen=True)
class Gauges:
    """What a page shows as it is at the moment."""

    length: float | None = None
    rate: float | None = None
    speed: float | None = None


def gauges(kind: Kind, page: Page) -> Gauges:
    """A page's gauges: means over the engines that have drafted, and the sum of their speeds."""
    lengths = [value for value in _by_engine(kind, page.get(kind.length, {})) if 1 <= value <= LARGEST]
    rates = [value for value in _by_engine(kind, page.get(kind.rate, {})) if 0 <= value <= 1]
    speeds = page.get(kind.speed)
    return Gauges(
        length=_mean(lengths),
        rate=_mean(rates) if lengths else None,  # 0 before anything was drafted
        speed=None if speeds is None else min(LARGEST, sum(_by_engine(kind, speeds))),
    )


def _by_engine(kind: Kind, gauge: Series) -> Sequence[float]:
    """A gauge of each engine, the highest that any of its processes shows."""
    engines = dict[Labels, float]()
    for labels, value in gauge.items():
        engine = tuple(label for label in labels if label[0] not in kind.ranks)
        engines[engine] = max(value, engines.get(engine, 0.0))
    return tuple(engines.values())


def figures(kind: Kind, counts: Counts, seconds: float, now: Gauges | None = None) -> Figures:
    """The figures of some time; with `now`, of the time that ends at the moment that the gauges are of."""
    shown = now or Gauges()
    return Figures(
        seconds=seconds,
        drafts=counts.drafts,
        drafted=counts.drafted,
        accepted=counts.accepted,
        generated=counts.generated,
        tokens_per_round=_first(shown.length, _length(kind, counts)),
        acceptance_rate=_first(share(counts.accepted, counts.drafted), shown.rate),
        acceptance_by_position=[share(accepted, counts.drafts) for accepted in counts.accepted_at],
        drafted_per_second=_ratio(counts.drafted, seconds),
        accepted_per_second=_ratio(counts.accepted, seconds),
        tokens_per_second=_first(shown.speed, _ratio(counts.generated, seconds)),
    )


def _length(kind: Kind, counts: Counts) -> float | None:
    if kind.rounds_generate:
        return _ratio(counts.generated, counts.drafts)
    accepted = sum(counts.accepted_at) if kind.drafted_at else counts.accepted  # of the rounds that are counted
    return length(accepted, counts.drafts)


def length(accepted: float | None, drafts: float | None) -> float | None:
    """L-bar: each round brings what was accepted and a token of the target's own."""
    more = _ratio(accepted, drafts)
    return None if more is None else min(LARGEST, 1 + more)


def share(part: float | None, whole: float | None) -> float | None:
    """At most 1: a page may be read while its counters change."""
    ratio = _ratio(part, whole)
    return None if ratio is None else min(1.0, ratio)


def _ratio(part: float | None, whole: float | None) -> float | None:
    return min(LARGEST, part / whole) if part is not None and whole else None


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _first(one: float | None, other: float | None) -> float | None:
    return other if one is None else one
