"""A run of all methods with frequent history adjustments, and runs with user actions."""

from collections.abc import Callable, Mapping, Sequence

from decoder import DynaTree, RunConfig, Steering, decode
from decoder.engine import Engine
from decoder.events import Event, Round
from decoder.knobs import KnobName
from tests.decoder.makers import METHODS, PROMPT, Played

TREES = ("dynatree", "linear", "fixed", "alg1")
LIVELY = DynaTree(window=2, eta_d=2, eta_h=0.3, target_acceptance=0.4, rho_stop=0.02, tau=0.02, rho_deep=0.1)
CONFIG = RunConfig(METHODS, 40, dynatree=LIVELY)
Turns = Mapping[int, Sequence[tuple[KnobName, float]]]
"""Knobs and their new values, by the round before which the user turns them."""


def steered(
    engine: Engine, config: RunConfig, act: Callable[[Steering, int], object], prompt: str = PROMPT, watched: int = 0
) -> Played:
    """A run in which the user acts before each round of one method, whose number `act` is given."""
    steering, events = Steering(), list[Event]()
    act(steering, 0)
    for event in decode(engine, prompt, config, steering):
        events.append(event)
        if isinstance(event, Round) and event.method == config.methods[watched]:
            act(steering, event.round + 1)
    return Played(events)


def turned(engine: Engine, config: RunConfig, turns: Turns, prompt: str = PROMPT, watched: int = 0) -> Played:
    """A run in which the user turns knobs before rounds of one method."""

    def act(steering: Steering, number: int) -> None:
        for knob, value in turns.get(number, ()):
            steering.turn(knob, value)

    return steered(engine, config, act, prompt, watched)
