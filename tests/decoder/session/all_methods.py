"""A run of all methods with frequent history adjustments, with or without user actions."""

from collections.abc import Callable

from decoder import DynaTree, RunConfig, Steering, decode
from decoder.events import Event, Round
from tests.decoder.makers import METHODS, Played, TinyModels

PROMPT = "The tree grows"
TREES = ("dynatree", "linear", "fixed", "alg1")
LIVELY = DynaTree(window=2, eta_d=2, eta_h=0.3, target_acceptance=0.4, rho_stop=0.02, tau=0.02, rho_deep=0.1)
CONFIG = RunConfig(METHODS, 40, dynatree=LIVELY)


def steered(
    tiny_models: TinyModels, config: RunConfig, at: int, turn: Callable[[Steering], object], dtype: str = "float64"
) -> Played:
    """A run in which `turn` is called after round `at - 1` of the first method."""
    steering, events = Steering(), list[Event]()
    for event in decode(tiny_models.loaded(tiny_models.pair("neox"), dtype), PROMPT, config, steering):
        events.append(event)
        if isinstance(event, Round) and event.method == config.methods[0] and event.round == at - 1:
            turn(steering)
    return Played(events)
