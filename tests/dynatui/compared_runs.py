"""Runs that decode one prompt with two settings of a method, A and B, in turns, for tests of their comparison."""

from dataclasses import asdict
from typing import Any

from msgspec import structs

from decoder.events import End, Event, Knob, Round, Run
from decoder.knobs import KnobName
from decoder.methods.dynatree import DynaTree
from tests.dynatui.scripted_runs import run, tree_round

A = "dynatree:A"
ROUNDS = 100
"""Of either side, three tokens each, so that 33 blocks count."""


def begun(at: str = "1", prompt: str = "Once upon", b: DynaTree | None = None, a: DynaTree | None = None) -> Run:
    sides = {"dynatree": b or DynaTree(d0=6), A: a or DynaTree()}
    parameters: dict[str, dict[str, Any]] = {
        name: {**asdict(own), "branching": [1, 2, 3], "window": 3} for name, own in sides.items()
    }
    return structs.replace(run(prompt=prompt), started_at=at, max_new_tokens=3 * ROUNDS, methods=parameters)


def turns(first: int = 0, last: int = ROUNDS, b_s: float = 0.016, a_s: float = 0.02) -> list[Event]:
    """Rounds of both sides; `b_s` and `a_s` are seconds of a round."""
    events = list[Event]()
    for number in range(first, last):
        events += [_round(number, "dynatree", b_s), _round(number, A, a_s)]
    return events


def _round(number: int, method: str, round_s: float) -> Round:
    """A accepts a guess less, and has the target write that token."""
    event = tree_round(number, d0=5.0 if method == A else 6.0)
    accepted = event.accepted[: 1 if method == A else None]
    return structs.replace(event, method=method, t=round_s * (number + 1), accepted=accepted)


def compared(*first: Event, b_s: float = 0.016, **settings: Any) -> list[Event]:
    """A whole run; `first` are events before its rounds."""
    ends = [End(method=name, reason="length") for name in ("dynatree", A)]
    return [begun(**settings), *first, *turns(b_s=b_s), *ends]


def turned(number: int, name: KnobName, old: float, new: float) -> Knob:
    return Knob(method="dynatree", round=number, name=name, old=old, new=new, source="user")
