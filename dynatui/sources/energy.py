"""Energy of a method's rounds, from the GPUs' counters, which are read after a round about once a second."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from msgspec import structs

from decoder.events import End, Energy, Event, Round, Run, Start, Summary
from dynatui.gpu import energy_counter

LEAST_S = 1.0
"""Least time between readings, since the counters are updated at intervals of up to 0.1 s."""
LEAST_SHARE = 0.8
"""Share of the time between two readings that the method must spend decoding: GPUs also use energy in pauses."""
ReadJoules = Callable[[], float | None]


@dataclass
class _Meter:
    read: ReadJoules
    begun: tuple[Round, float] | None = None
    """The round after which the measured stretch begins, and the counter's joules at that time."""
    tokens: int = 0
    """Number of tokens committed since `begun`."""
    due_s: float = 0.0
    totals: dict[str, Energy] = field(default_factory=dict)

    def after(self, event: Round) -> Energy | None:
        """Energy of the stretch that ends with this round; None if no valid stretch ends here."""
        if self.begun and self.begun[0].method != event.method:
            self.begun = None
        self.tokens += len(event.committed)
        if event.wall_s < self.due_s:
            return None
        begun, tokens, joules = self.begun, self.tokens, self.read()
        self.begun, self.tokens = None if joules is None else (event, joules), 0
        self.due_s = event.wall_s + LEAST_S
        if begun is None or joules is None:
            return None
        first, before = begun
        alone = event.t - first.t >= LEAST_SHARE * (event.wall_s - first.wall_s)
        return Energy(joules - before, tokens) if alone and joules >= before else None

    def taken(self, event: Round) -> Round:
        energy = self.after(event)
        if energy is None:
            return event
        total = self.totals.get(event.method, Energy(0.0, 0))
        self.totals[event.method] = Energy(total.joules + energy.joules, total.tokens + energy.tokens)
        return structs.replace(event, energy=energy)

    def summed(self, event: Summary) -> Summary:
        per_token = {name: total.joules / total.tokens for name, total in self.totals.items() if total.tokens}
        figures = {
            name: structs.replace(entry, joules_per_token=per_token.get(name)) for name, entry in event.methods.items()
        }
        return structs.replace(event, methods=figures)


def metered(
    events: Iterable[Event], open_counter: Callable[[Sequence[str]], ReadJoules] = energy_counter
) -> Iterator[Event]:
    """The events of a run, with the energy of each stretch of rounds in which one method alone decoded."""
    meter = _Meter(lambda: None)
    for event in events:
        match event:
            case Run():
                meter = _Meter(open_counter(event.ranks or [event.device]))
                yield event
            case Round():
                yield meter.taken(event)
            case Summary():
                yield meter.summed(event)
            case _:
                if isinstance(event, Start | End):
                    meter.begun = None
                yield event
