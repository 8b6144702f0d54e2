"""The knobs under the user's hand."""

from dataclasses import dataclass, field, replace

import pytest

from decoder.config import PRESETS, Fixed, RunConfig
from decoder.events import Knob
from decoder.knobs import KnobName
from dynatui.fold.state import RunState
from dynatui.screen.desk import Desk
from tests.dynatui.render.scripted import run, state_of, tree_round

PAPER = RunConfig(dynatree=PRESETS["paper"])


@dataclass
class Engine:
    """Remembers what was turned, as an engine's controls do."""

    config: RunConfig = PAPER
    turns: list[tuple[KnobName, float]] = field(default_factory=list)

    def turn(self, name: KnobName, value: float) -> None:
        self.turns.append((name, round(value, 6)))
        self.config = self.config.turned(name, value)


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def desk(engine: Engine) -> Desk:
    return Desk(engine)  # type: ignore[arg-type]  # only turn and config are used


def at(d0: float = 5.0, tau_h: float = 0.9) -> RunState:
    """In force, after history."""
    return state_of([run(), tree_round(0, d0=d0, tau_h=tau_h)])


def test_a_knob_is_turned_from_where_history_has_moved_it(desk: Desk, engine: Engine) -> None:
    desk.move("d0", 1, at(d0=6.4))
    assert engine.turns == [("d0", 7.0)]


def test_presses_add_up_before_the_first_is_in_force(desk: Desk, engine: Engine) -> None:
    desk.move("tau_h", -0.05, at())
    desk.move("tau_h", -0.05, at())
    assert engine.turns == [("tau_h", 0.85), ("tau_h", 0.8)]
    assert desk.wanted["tau_h"] == pytest.approx(0.8)


def test_what_is_in_force_is_no_longer_wanted(desk: Desk) -> None:
    desk.move("tau_h", -0.05, at())
    desk.take(Knob(method="dynatree", round=1, name="tau_h", old=0.9, new=0.85, source="user"))
    assert desk.wanted == {}


def test_undo_goes_back_turn_by_turn(desk: Desk, engine: Engine) -> None:
    desk.set("tau_l", 0.3, at())
    desk.set("n_max", 64, at())
    assert desk.undo(at()) == "n_max"
    assert desk.undo(at()) == "tau_l"
    assert desk.undo(at()) is None
    assert engine.turns[-2:] == [("n_max", 256.0), ("tau_l", 0.4)]


def test_a_turn_against_the_stop_is_none_and_leaves_nothing_to_undo(desk: Desk, engine: Engine) -> None:
    desk.set("d0", 99, at(d0=7.0))
    assert engine.turns == []
    assert desk.undo(at()) is None


def test_the_defaults_are_what_the_program_was_started_with() -> None:
    engine = Engine(RunConfig(dynatree=replace(PAPER.dynatree, tau_h=0.7, tau_l=0.2)))
    desk = Desk(engine)  # type: ignore[arg-type]  # only turn and config are used
    state = at(tau_h=0.7)
    desk.set("tau_h", 0.95, state)
    desk.set("tau_l", 0.9, state)
    desk.set("d0", 3, state)
    desk.defaults(state)
    assert (engine.config.dynatree.tau_h, engine.config.dynatree.tau_l, engine.config.dynatree.d0) == (0.7, 0.2, 5.0)


def test_a_preset_brings_every_knob_of_dynatree(desk: Desk, engine: Engine) -> None:
    desk.set("tau_h", 0.5, at())
    desk.set("d_max", 12, at())
    assert [desk.next_preset(at()) for _ in range(2)] == ["fast", "paper"]
    assert engine.config.dynatree == PRESETS["paper"]


def test_the_next_preset_is_not_the_one_that_is_in_force() -> None:
    desk = Desk(Engine(RunConfig()))  # type: ignore[arg-type]  # only turn and config are used
    assert desk.next_preset(at()) == "paper"


def test_presets_defaults_and_undo_leave_the_fixed_tree_alone(desk: Desk, engine: Engine) -> None:
    for _ in PRESETS:
        desk.next_preset(at())
        assert engine.config.fixed == Fixed()
    desk.set("tau", 0.3, at())
    desk.undo(at())
    desk.set("tau", 0.2, at())
    desk.defaults(at())
    assert engine.config.fixed == Fixed()
