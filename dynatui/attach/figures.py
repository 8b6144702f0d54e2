"""Defines every figure of a server, computed from the increase of its counters or read from its gauges.

    tokens_per_round         L-bar: 1 + accepted / drafts; if all tokens are generated in rounds, generated / drafts
    acceptance_rate          accepted / drafted
    acceptance_by_position   accepted at the position / drafted at the position, which not every draft reaches; if the
                             server does not count the latter, / drafts
    ..._per_second           the count / seconds

Acceptance length, acceptance rate and speed are read from the server's own gauges if there are such gauges, because
counters grow only when a request is complete. If a server counts neither drafted nor accepted tokens, the two counts
are derived from the server's rounds:

    drafted    rounds x drafted tokens per round, if that number is constant
    accepted   generated - rounds, if all tokens are generated in rounds

A figure that is unknown is None.
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
    length: float | None = None
    rate: float | None = None
    speed: float | None = None
    drafting: Drafting | None = None

    @property
    def drafts(self) -> int | None:
        if self.drafting is None:
            return None
        return self.drafting.draft_tokens - 1 if self.drafting.draft_tokens else self.drafting.steps


def gauges(kind: Kind, page: Page) -> Gauges:
    """`length` and `rate` are means over the engines that have drafted, `speed` is their sum."""
    lengths = [value for value in _by_engine(kind, page.get(kind.length, {})) if 1 <= value <= LARGEST]
    rates = [value for value in _by_engine(kind, page.get(kind.rate, {})) if 0 <= value <= 1]
    speeds = page.get(kind.speed)
    return Gauges(
        length=_mean(lengths),
        rate=_mean(rates) if lengths else None,  # before the first draft, the gauge is 0, which is no rate
        speed=None if speeds is None else min(LARGEST, sum(_by_engine(kind, speeds))),
        drafting=_drafting(kind, page),
    )


def _drafting(kind: Kind, page: Page) -> Drafting | None:
    """`steps` and `draft_tokens` are known only if all engines have the same value; the others are means."""

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
    """Derives missing numbers of drafted and accepted tokens from rounds of `drafts` tokens each."""
    rounds, generated = counts.drafts, counts.generated
    if kind.drafted or not kind.rounds_generate or rounds is None or generated is None or drafts is None:
        return counts
    drafted = min(MOST_COUNTED, rounds * drafts)
    return replace(counts, drafted=drafted, accepted=max(0, min(generated - rounds, drafted)))


def _by_engine(kind: Kind, gauge: Series) -> Sequence[float]:
    """The maximum over each engine's processes."""
    engines = dict[Labels, float]()
    for labels, value in gauge.items():
        engine = tuple(label for label in labels if label[0] not in kind.ranks)
        engines[engine] = max(value, engines.get(engine, 0.0))
    return tuple(engines.values())


def figures(kind: Kind, counts: Counts, seconds: float, now: Gauges | None = None) -> Figures:
    """A gauge at the interval's end is used in place of a counter for the same figure."""
    gauges = now or Gauges()
    return Figures(
        seconds=seconds,
        drafts=counts.drafts,
        drafted=counts.drafted,
        accepted=counts.accepted,
        generated=counts.generated,
        tokens_per_round=_first_known(gauges.length, _length(kind, counts)),
        acceptance_rate=_first_known(gauges.rate, share(counts.accepted, counts.drafted)),
        acceptance_by_position=_by_position(counts),
        drafted_per_second=_ratio(counts.drafted, seconds),
        accepted_per_second=_ratio(counts.accepted, seconds),
        tokens_per_second=_first_known(gauges.speed, _ratio(counts.generated, seconds)),
    )


def _by_position(counts: Counts) -> list[float | None]:
    drafted_at = counts.drafted_at or (counts.drafts,) * len(counts.accepted_at)
    return list(map(share, counts.accepted_at, (*drafted_at, *[None] * len(counts.accepted_at))))


def _length(kind: Kind, counts: Counts) -> float | None:
    return _ratio(counts.generated, counts.drafts) if kind.rounds_generate else round_length(kind, counts)


def round_length(kind: Kind, counts: Counts) -> float | None:
    return length(sum(counts.accepted_at) if kind.drafted_at else counts.accepted, counts.drafts)


def length(accepted: float | None, drafts: float | None) -> float | None:
    """L-bar: accepted tokens per round, plus the target's own."""
    more = _ratio(accepted, drafts)
    return None if more is None else min(LARGEST, 1 + more)


def share(part: float | None, whole: float | None) -> float | None:
    """A ratio of at most 1, which counters that change while a page is read may exceed."""
    ratio = _ratio(part, whole)
    return None if ratio is None else min(1.0, ratio)


def _ratio(part: float | None, whole: float | None) -> float | None:
    return min(LARGEST, part / whole) if part is not None and whole else None


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _first_known(first: float | None, second: float | None) -> float | None:
    return second if first is None else first
