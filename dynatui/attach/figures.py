"""Every figure of a server, from what its counters grew by and what its gauges show, each defined here and only here.

    tokens_per_round         L-bar: 1 + accepted / drafts; where all tokens are generated in rounds, generated / drafts
    acceptance_rate          accepted / drafted
    acceptance_by_position   accepted there / drafts
    ..._per_second           the count / seconds

A gauge of the server comes first for its acceptance length, its acceptance rate and its speed, which counters tell only
once a request is done. Where a server counts neither drafted nor accepted tokens, both follow from its rounds:

    drafted    rounds x what each of them drafts, where that stays the same
    accepted   generated - rounds, where all tokens are generated in rounds

What cannot be known is None.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dynatui.attach.counters import Counts
from dynatui.attach.events import LARGEST, Drafting, Figures
from dynatui.attach.exposition import LARGEST as MOST_COUNTED
from dynatui.attach.exposition import Labels, Page, Series
from dynatui.attach.servers import Kind


@dataclass(frozen=True)
class Gauges:
    """The gauges of a page."""

    length: float | None = None
    rate: float | None = None
    speed: float | None = None
    drafting: Drafting | None = None

    @property
    def drafts(self) -> int | None:
        """Tokens that a round drafts."""
        if self.drafting is None:
            return None
        return self.drafting.draft_tokens - 1 if self.drafting.draft_tokens else self.drafting.steps


def gauges(kind: Kind, page: Page) -> Gauges:
    """A page's gauges: means over the engines that have drafted, and the sum of their speeds."""
    lengths = [value for value in _by_engine(kind, page.get(kind.length, {})) if 1 <= value <= LARGEST]
    rates = [value for value in _by_engine(kind, page.get(kind.rate, {})) if 0 <= value <= 1]
    speeds = page.get(kind.speed)
    return Gauges(
        length=_mean(lengths),
        rate=_mean(rates) if lengths else None,  # 0 before anything was drafted
        speed=None if speeds is None else min(LARGEST, sum(_by_engine(kind, speeds))),
        drafting=_drafting(kind, page),
    )


def _drafting(kind: Kind, page: Page) -> Drafting | None:
    """How a server drafts: what all its engines show, and means over them; None where nothing of it is shown."""

    def same(name: str) -> int | None:
        sizes = set(_by_engine(kind, page.get(name, {}))) - {0.0}
        return round(sizes.pop()) if len(sizes) == 1 else None

    def mean(name: str) -> float | None:
        return _mean([value for value in _by_engine(kind, page.get(name, {})) if 1 <= value <= LARGEST])

    drafting = Drafting(
        steps=same(kind.steps),
        draft_tokens=same(kind.draft_tokens),
        cap_length=mean(kind.cap_length),
        block_accept_length=mean(kind.block_length),
    )
    return None if drafting == Drafting() else drafting


def with_drafts(kind: Kind, counts: Counts, drafts: int | None) -> Counts:
    """The counts of a server that counts neither drafted nor accepted tokens, with both; `drafts` are those a round."""
    rounds, generated = counts.drafts, counts.generated
    if kind.drafted or not kind.rounds_generate or rounds is None or generated is None or drafts is None:
        return counts
    drafted = min(MOST_COUNTED, rounds * drafts)
    return replace(counts, drafted=drafted, accepted=max(0, min(generated - rounds, drafted)))


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
        acceptance_rate=_first(shown.rate, share(counts.accepted, counts.drafted)),
        acceptance_by_position=[share(accepted, counts.drafts) for accepted in counts.accepted_at],
        drafted_per_second=_ratio(counts.drafted, seconds),
        accepted_per_second=_ratio(counts.accepted, seconds),
        tokens_per_second=_first(shown.speed, _ratio(counts.generated, seconds)),
    )


def _length(kind: Kind, counts: Counts) -> float | None:
    return _ratio(counts.generated, counts.drafts) if kind.rounds_generate else round_length(kind, counts)


def round_length(kind: Kind, counts: Counts) -> float | None:
    """L-bar from what was accepted in the rounds that are counted."""
    return length(sum(counts.accepted_at) if kind.drafted_at else counts.accepted, counts.drafts)


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
