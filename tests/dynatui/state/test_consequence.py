"""Tests of the effect of a turned knob: the compared rounds and the intervals."""

from collections.abc import Iterable

import pytest
from msgspec import structs

from decoder.events import Event
from decoder.knobs import KnobName
from dynatui.state.ab_comparison import ROUNDS, Consequence, consequence
from dynatui.state.run_state import RunState
from tests.dynatui.scripted_runs import run, state_of
from tests.dynatui.turned_runs import rounds, turned


def state(*parts: Event | Iterable[Event]) -> RunState:
    events: list[Event] = [run()]
    for part in parts:
        events += part if isinstance(part, Iterable) else [part]
    return state_of(events)


def found(*parts: Event | Iterable[Event]) -> Consequence:
    told = consequence(state(*parts).lane)
    assert told is not None
    return told


def test_a_turn_is_told_of_by_ten_rounds_before_it_and_ten_after() -> None:
    told = found(rounds(range(14)), turned("d0", 14, 2, 5), rounds(range(14, 40), nodes=10))
    assert [(mark.name, mark.old, mark.new) for mark in told.marks] == [("d0", 2, 5)]
    assert (len(told.before), len(told.after), told.complete) == (ROUNDS, ROUNDS, True)
    assert told.nodes == (7, 10)
    assert [event.round for event in told.rounds] == list(range(14, 24))


@pytest.mark.parametrize("name", ["d0", "tau_h", "tau_l"])
def test_it_has_intervals_when_both_sides_have_ten_rounds(name: KnobName) -> None:
    past: list[Event] = [*rounds(range(12)), turned(name, 12, 0.9, 0.3)]
    assert found(past, rounds(range(12, 21), more=1)).differences == ()
    assert found(rounds(range(9)), turned(name, 9, 0.9, 0.3), rounds(range(9, 30), more=1)).differences == ()
    told = {one.figure: one for one in found(past, rounds(range(12, 22), more=1)).differences}
    longer = told["tokens_per_round"]
    assert longer.difference == pytest.approx(1.0)
    assert longer.low < 1 < longer.high
    assert told["tokens_per_second"].low < told["tokens_per_second"].difference < told["tokens_per_second"].high


def test_a_held_key_is_one_turn_from_its_first_value_to_its_last() -> None:
    events: list[Event] = [*rounds(range(12))]
    for place in range(5):
        events += [turned("d0", 12 + 2 * place, 2 + place, 3 + place), *rounds(range(12 + 2 * place, 14 + 2 * place))]
    told = found(events, rounds(range(22, 35), nodes=9))
    assert [(mark.old, mark.new) for mark in told.marks] == [(2, 7)]
    assert [event.round for event in told.rounds] == list(range(20, 30))
    assert len(told.before) == ROUNDS
    assert told.nodes == pytest.approx((7, 8.6))


def test_knobs_that_are_turned_together_are_told_of_together_and_those_turned_back_are_not() -> None:
    turns: list[Event] = [turned("d0", 12, 2, 5), turned("tau_h", 12, 0.9, 0.8), turned("tau_l", 12, 0.4, 0.3)]
    told = found(rounds(range(12)), turns, rounds(range(12, 14)), turned("tau_h", 14, 0.8, 0.9))
    assert [mark.name for mark in told.marks] == ["d0", "tau_l"]


def test_history_itself_is_no_knob_with_a_consequence() -> None:
    off = turned("history", 12, 1, 0)
    assert consequence(state(rounds(range(12)), off, rounds(range(12, 22))).lane) is None
    held = found(rounds(range(12)), off, turned("d0", 12, 3.8, 5), rounds(range(12, 22)))
    assert [mark.name for mark in held.marks] == ["d0"]


def test_a_turn_there_and_back_has_no_consequence() -> None:
    events: list[Event] = [*rounds(range(12)), turned("d0", 12, 2, 5), *rounds(range(12, 14)), turned("d0", 14, 5, 2)]
    assert consequence(state(events).lane) is None
    assert consequence(state(rounds(range(12))).lane) is None
    assert consequence(state(turned("d0", 0, 2, 5), rounds(range(12))).lane) is None


def test_rounds_under_other_values_are_not_among_those_before() -> None:
    told = found(
        rounds(range(12), nodes=5),
        turned("tau_h", 12, 0.9, 0.8),
        rounds(range(12, 24), nodes=7),
        turned("d0", 24, 2, 5),
        rounds(range(24, 36), nodes=9),
    )
    assert told.nodes == (7, 9)
    told = found(turned("tau_h", 2, 0.9, 0.8), rounds(range(13)), turned("d0", 13, 2, 5), rounds(range(13, 30)))
    assert len(told.before) == ROUNDS


@pytest.mark.parametrize(("gap", "names"), [(9, ["tau_h", "d0"]), (10, ["d0"])])
def test_a_turn_after_fewer_than_ten_rounds_continues_the_one_before(gap: int, names: list[str]) -> None:
    turns = [turned("tau_h", 12, 0.9, 0.8), turned("d0", 12 + gap, 2, 5)]
    told = found(rounds(range(12)), turns[0], rounds(range(12, 12 + gap)), turns[1], rounds(range(12 + gap, 40)))
    assert [mark.name for mark in told.marks] == names


def test_a_move_of_history_is_no_turn() -> None:
    moved = turned("d0", 16, 5, 4, source="history")
    told = found(rounds(range(12)), turned("d0", 12, 2, 5), rounds(range(12, 16)), moved, rounds(range(16, 24)))
    assert [(mark.old, mark.new) for mark in told.marks] == [(2, 5)]


def test_a_stalled_round_is_no_slowdown() -> None:
    after = rounds(range(12, 22))
    late = [structs.replace(event, t=event.t + 0.5) for event in after[5:]]
    late[0] = structs.replace(late[0], stalled_s=0.5)
    told = found(rounds(range(12)), turned("d0", 12, 2, 5), after[:5], late)
    speed = next(one for one in told.differences if one.figure == "tokens_per_second")
    assert speed.b == pytest.approx(speed.a, rel=0.2)


def test_every_place_of_a_run_has_its_own() -> None:
    events: list[Event] = [
        *rounds(range(12)),
        turned("d0", 12, 2, 5),
        *rounds(range(12, 24), nodes=10),
        turned("d0", 24, 5, 2),
        *rounds(range(24, 36)),
    ]
    seen = [consequence(state(events[:end]).lane) for end in (12, 25, 26, 38)]
    assert [told and told.nodes for told in seen] == [None, (7, 10), None, (10, 7)]
