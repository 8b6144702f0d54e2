"""Rounds before and after a turn of a knob, for tests of the turn's effect."""

from collections.abc import Iterable
from typing import Literal

from msgspec import structs

from decoder.events import Knob, Round
from decoder.knobs import KnobName
from tests.dynatui.scripted_runs import tree_round

TOKENS = (2, 3, 4, 3, 2)


def turned(name: KnobName, number: int, old: float, new: float, source: Literal["user", "history"] = "user") -> Knob:
    return Knob(method="dynatree", round=number, name=name, old=old, new=new, source=source)


def rounds(numbers: Iterable[int], nodes: int = 7, more: int = 0, round_s: float = 0.02) -> list[Round]:
    found = []
    for number in numbers:
        event, extra = tree_round(number), nodes - 5
        committed = list(range(TOKENS[number % len(TOKENS)] + more))
        found.append(
            structs.replace(
                event,
                t=round_s * (number + 1),
                committed=committed,
                tokens=[*event.tokens, *[9] * extra],
                parents=[*event.parents, *[5] * extra],
                logprobs=[*event.logprobs, *[-5.0] * extra],
                pieces=[*event.pieces, *["x"] * extra],
            )
        )
    return found
