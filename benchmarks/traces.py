"""Recordings for benchmarks of the screen: rounds of a trace, repeated, with a fixed number of tokens per second."""

from collections.abc import Iterator, Sequence
from itertools import cycle, pairwise
from pathlib import Path

from msgspec import structs

from decoder.events import Event, Round, Run, Start, encode

TRACE = Path(__file__).parents[1] / "tests" / "traces" / "demo.jsonl"


def steady(events: Sequence[Event], *, tokens_per_second: float, seconds: float) -> Iterator[Event]:
    """Events of one long run: rounds of all recorded runs, repeated, renumbered and evenly spaced in time."""
    first = next(event for event in events if isinstance(event, Run))
    watched = next(iter(first.methods))
    stretch = _tokens_per_second(events, watched) / tokens_per_second
    yield structs.replace(first, max_new_tokens=round(tokens_per_second * seconds))
    yield from [Start(method=name, prefill_s=0.0) for name in first.methods]
    rounds, tokens = dict.fromkeys(first.methods, 0), dict.fromkeys(first.methods, 0)
    clocks, began_s = dict.fromkeys(first.methods, 0.0), 0.0
    for lap in cycle(_laps(events)):
        ended_s, starts = began_s, dict(clocks)
        for event in lap:
            name = event.method
            ended_s = began_s + event.wall_s * stretch
            clocks[name] = starts[name] + event.t * stretch
            yield structs.replace(event, round=rounds[name], position=tokens[name], t=clocks[name], wall_s=ended_s)
            rounds[name] += 1
            tokens[name] += len(event.committed)
        began_s = ended_s
        if began_s >= seconds:
            return


def write(path: Path, events: Iterator[Event]) -> Path:
    path.write_bytes(b"".join(map(encode, events)))
    return path


def _laps(events: Sequence[Event]) -> list[list[Round]]:
    """Rounds of each run, in chronological order."""
    places = [place for place, event in enumerate(events) if isinstance(event, Run)]
    laps = [[event for event in events[a:b] if isinstance(event, Round)] for a, b in pairwise([*places, len(events)])]
    return [sorted(lap, key=lambda event: event.wall_s) for lap in laps]


def _tokens_per_second(events: Sequence[Event], method: str) -> float:
    """Recorded speed of a method, in tokens per second of wall time."""
    laps = [[event for event in lap if event.method == method] for lap in _laps(events)]
    tokens = sum(len(event.committed) for lap in laps for event in lap)
    return tokens / sum(lap[-1].wall_s for lap in _laps(events) if lap)
