"""Totals over all runs of a process, as a pure fold over the events; no count ever decreases.

As in vLLM, each round with drafted tokens counts as one draft, accepted tokens are counted by position in the draft,
and each round gives one latency. Knows neither HTTP nor names of metrics.
"""

from bisect import bisect_left
from collections.abc import Mapping
from itertools import zip_longest

import msgspec
from msgspec.structs import replace

from decoder.analysis.metrics import drafted_nodes
from decoder.events import Event, Round, Run, Start
from dynatui.clean import clean_line

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0)
"""A round of a small pair on a GPU takes about as long as the first bound."""


class Latencies(msgspec.Struct, frozen=True):
    counts: tuple[int, ...] = (0,) * (len(BOUNDS_S) + 1)
    """Not cumulative; the last bucket is above all bounds."""
    total_s: float = 0.0

    def plus(self, seconds: float) -> "Latencies":
        place = bisect_left(BOUNDS_S, seconds)
        counts = (*self.counts[:place], self.counts[place] + 1, *self.counts[place + 1 :])
        return Latencies(counts, self.total_s + seconds)


class Drafts(msgspec.Struct, frozen=True):
    rounds: int = 0
    """Those that drafted any token."""
    tokens: int = 0
    """Tree nodes that the target verified."""
    accepted: tuple[int, ...] = ()
    """By position on the accepted path: depth below the last committed token, minus 1."""

    def plus(self, drafted: int, accepted: int) -> "Drafts":
        places = zip_longest(self.accepted, (1,) * accepted, fillvalue=0)
        return Drafts(
            self.rounds + (drafted > 0),
            self.tokens + drafted,
            tuple(before + increment for before, increment in places),
        )


class MethodTotals(msgspec.Struct, frozen=True):
    prompt_tokens: int = 0
    """Of the runs in which the method has completed a round."""
    generated: int = 0
    drafts: Drafts | None = None
    """None if the method does not report its drafts."""
    to_first: Latencies = Latencies()
    """Prefill time plus decode time of the first round."""
    between: Latencies = Latencies()
    """Decode time of each later round."""
    prefill_s: float = 0.0
    """Of the current text."""
    decode_s: float = 0.0
    """Of the current text."""


class Totals(msgspec.Struct, frozen=True):
    target: str = ""
    prompt_tokens: int = 0
    """Of the current run."""
    methods: Mapping[str, MethodTotals] = msgspec.field(default_factory=dict)
    """In the order of first events."""


def after(totals: Totals, event: Event) -> Totals:
    match event:
        case Run():
            return replace(totals, target=clean_line(event.target), prompt_tokens=len(event.prompt_tokens))
        case Start() | Round():
            before = totals.methods.get(event.method, MethodTotals())
            of_method = (
                _decoded(before, event, totals.prompt_tokens) if isinstance(event, Round) else _started(before, event)
            )
            return replace(totals, methods={**totals.methods, event.method: of_method})
        case _:
            return totals


def _started(of_method: MethodTotals, event: Start) -> MethodTotals:
    return replace(of_method, prefill_s=event.prefill_s)


def _decoded(of_method: MethodTotals, event: Round, prompt_tokens: int) -> MethodTotals:
    updated = replace(of_method, generated=of_method.generated + len(event.committed), decode_s=event.t)
    if event.draft_forwards is not None:
        updated = replace(
            updated, drafts=(of_method.drafts or Drafts()).plus(drafted_nodes(event), len(event.accepted))
        )
    if event.round > 0:
        return replace(updated, between=of_method.between.plus(event.t - of_method.decode_s))
    first_s = of_method.prefill_s + event.t
    return replace(
        updated, prompt_tokens=of_method.prompt_tokens + prompt_tokens, to_first=of_method.to_first.plus(first_s)
    )
