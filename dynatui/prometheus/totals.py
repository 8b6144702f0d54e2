"""Totals over all runs of a process: a pure fold of events in which no number ever falls.

What counts, and when, is as in vLLM: a draft where anything was drafted, an accepted token by its place in the path, a
latency once a round. Knows neither HTTP nor names of metrics.
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
"""Up to these, latencies are counted together; the rounds of a small pair on a GPU take about the first."""


class Latencies(msgspec.Struct, frozen=True):
    """How often something took how long."""

    counts: tuple[int, ...] = (0,) * (len(BOUNDS_S) + 1)
    """Of those up to each bound and above the one before it; at last, of those above all bounds."""
    total_s: float = 0.0

    def plus(self, seconds: float) -> "Latencies":
        """With one more."""
        place = bisect_left(BOUNDS_S, seconds)
        counts = (*self.counts[:place], self.counts[place] + 1, *self.counts[place + 1 :])
        return Latencies(counts, self.total_s + seconds)


class Drafts(msgspec.Struct, frozen=True):
    """What was drafted, and what of it was accepted."""

    rounds: int = 0
    """Those in which anything was drafted."""
    tokens: int = 0
    """Drafted nodes that were verified."""
    accepted: tuple[int, ...] = ()
    """Accepted nodes by their place in the path, from 0: their depth below what was there before the round."""

    def plus(self, drafted: int, accepted: int) -> "Drafts":
        """With one more round, of so many nodes, and a path of so many."""
        places = zip_longest(self.accepted, (1,) * accepted, fillvalue=0)
        return Drafts(self.rounds + (drafted > 0), self.tokens + drafted, tuple(before + one for before, one in places))


class MethodTotals(msgspec.Struct, frozen=True):
    """Totals of one method."""

    prompt_tokens: int = 0
    """Of the prompts that it has continued by a round at least."""
    generated: int = 0
    drafts: Drafts | None = None
    """None: it does not tell what it drafts."""
    to_first: Latencies = Latencies()
    """From the beginning of a prompt to the end of its first round, by the method's own clock."""
    between: Latencies = Latencies()
    """From round to round of a text, by the same."""
    prefill_s: float = 0.0
    """Of the text in progress."""
    decode_s: float = 0.0
    """Of the text in progress, so far."""


class Totals(msgspec.Struct, frozen=True):
    """Totals of all methods."""

    target: str = ""
    prompt_tokens: int = 0
    """Of the run in progress."""
    methods: Mapping[str, MethodTotals] = msgspec.field(default_factory=dict)
    """In the order in which they came."""


def after(totals: Totals, event: Event) -> Totals:
    """The totals after one more event."""
    match event:
        case Run():
            return replace(totals, target=clean_line(event.target), prompt_tokens=len(event.prompt_tokens))
        case Start() | Round():
            before = totals.methods.get(event.method, MethodTotals())
            own = _decoded(before, event, totals.prompt_tokens) if isinstance(event, Round) else _started(before, event)
            return replace(totals, methods={**totals.methods, event.method: own})
        case _:
            return totals


def _started(own: MethodTotals, event: Start) -> MethodTotals:
    return replace(own, prefill_s=event.prefill_s)


def _decoded(own: MethodTotals, event: Round, prompt_tokens: int) -> MethodTotals:
    told = replace(own, generated=own.generated + len(event.committed), decode_s=event.t)
    if event.draft_forwards is not None:
        told = replace(told, drafts=(own.drafts or Drafts()).plus(drafted_nodes(event), len(event.accepted)))
    if event.round > 0:
        return replace(told, between=own.between.plus(event.t - own.decode_s))
    first_s = own.prefill_s + event.t
    return replace(told, prompt_tokens=own.prompt_tokens + prompt_tokens, to_first=own.to_first.plus(first_s))
