"""A run of all methods with frequent history adjustments, runs with user actions, and random rules of trees."""

from collections.abc import Callable, Mapping, Sequence

from hypothesis import strategies as st

from decoder import DynaTree, Fixed, RunConfig, Steering, decode
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


@st.composite
def dynatrees(draw: st.DrawFn) -> DynaTree:
    """Random DynaTree rules within the bounds, often at the bounds, and small enough for a quick check."""
    d_max = draw(st.integers(2, 9))
    branching = draw(st.sampled_from([(1, 2, 3), (2, 3, 4), (1, 1, 4), (2, 2, 2), (3, 3, 3), (1, 1, 1), (1, 3, 3)]))
    tau_l = draw(st.sampled_from([0.1, 0.4, 0.6]) | st.floats(0.01, 0.95))
    tau_h = max(tau_l + 0.02, draw(st.sampled_from([0.7, 0.9, 1.0]) | st.floats(0.1, 1)))
    rho_stop = draw(st.sampled_from([0.0, 0.01, 0.1]) | st.floats(0, 0.1))
    rho_deep = draw(st.sampled_from([0.0, 0.05, 0.2, 1.0]) | st.floats(0, 0.3))
    return DynaTree(
        d0=draw(st.sampled_from([1.0, d_max - 1.0]) | st.floats(1, d_max - 1)),
        d_max=d_max,
        branching=branching,
        tau_h=tau_h,
        tau_l=tau_l,
        rho_stop=rho_stop,
        rho_deep=max(rho_stop, rho_deep),
        tau=draw(st.sampled_from([0.0, 0.0, 0.02]) | st.floats(0, 0.1)),
        n_max=draw(st.sampled_from([40, 80, 24, 256, 12, 9, 7, 5, 3, 2, 1])),
        selection=draw(st.sampled_from(["bfs", "best"])),
        history=draw(st.booleans()),
        window=draw(st.integers(1, 4)),
        target_acceptance=draw(st.sampled_from([0.1, 0.4, 0.7])),
        eta_d=draw(st.sampled_from([1.0, 3.0])),
        eta_h=draw(st.sampled_from([0.1, 0.5])),
        sharpness=draw(st.sampled_from([1.0, 1.0, 2.0, 0.5])),
    )


FIXEDS = st.builds(
    Fixed,
    depth=st.integers(1, 6),
    branching=st.integers(1, 4),
    tau=st.sampled_from([0.0, 0.02, 1.0]) | st.floats(0, 0.1),
    n_max=st.sampled_from([40, 80, 24, 12, 9, 7, 5, 3, 2, 1]),
)
