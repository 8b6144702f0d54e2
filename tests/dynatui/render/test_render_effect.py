"""Tests of the line below the sliders: the effect of the last turn, and the rule that makes a knob ineffective."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from decoder.events import Event, Knob, Limit, Round
from decoder.knobs import KnobName
from dynatui.keymap import KEYMAP
from dynatui.render.effect import consequence_line
from dynatui.render.ink import in_ascii, width_of
from dynatui.render.scene import Scene
from dynatui.render.sliders import knobs, notes
from dynatui.state.ab_comparison import Pin
from dynatui.state.run_state import RunState
from tests.dynatui.scripted_runs import lines, run, state_of, text_of, tree_round
from tests.dynatui.turned_runs import rounds, turned

OFF: dict[str, Any] = {"history": False}


def limited(events: Sequence[Round], by: Limit | None, d0: float = 5.0) -> list[Round]:
    return [structs.replace(event, limited_by=by, knobs=tree_round(event.round, d0=d0).knobs) for event in events]


def state(
    name: KnobName = "d0",
    old: float = 2,
    new: float = 5,
    *,
    by: Limit | None = "n_max",
    nodes: tuple[int, int] = (7, 7),
    count: int = 10,
    later: Sequence[Event] = (),
    **parameters: Any,
) -> RunState:
    told = run()
    own = {**told.methods["dynatree"], **OFF, **parameters}
    begun = structs.replace(told, methods={"dynatree": own, "ar": {}})
    before, after = rounds(range(12), nodes[0]), rounds(range(12, 12 + count), nodes[1], more=1)
    return state_of([begun, *before, turned(name, 12, old, new), *limited(after, by), *later])


def line(told: RunState, width: int = 116, **seen: Any) -> str:
    return text_of(consequence_line(Scene(told, **seen), width)).rstrip()


def test_a_turn_is_told_with_nodes_tokens_a_round_and_speed_each_with_its_interval() -> None:
    assert line(state(nodes=(7, 10), by="d0")) == (
        "D0 2 → 5: nodes 7 → 10, L-bar +1.00 (+0.07 to +2.22), tokens/s +36 % (+3 to +79 %) (10 rounds each)"
    )


def test_rounds_are_counted_up_until_there_are_enough() -> None:
    assert line(state(count=0)) == "D0 2 → 5 (0 of 10 rounds)"
    assert line(state(nodes=(7, 10), count=3)) == "D0 2 → 5: nodes 7 → 10 (3 of 10 rounds)"


def test_a_turn_after_few_rounds_is_not_compared() -> None:
    told = state_of([run(), *rounds(range(6)), turned("d0", 6, 2, 5), *rounds(range(6, 20), 10, more=1)])
    assert line(told) == "D0 2 → 5: nodes 7 → 10 (only 6 rounds before the turn: no comparison)"


@pytest.mark.parametrize(("name", "old", "new"), [("d0", 1, 7), ("tau_h", 0.41, 1), ("tau_l", 0.01, 0.89)])
def test_from_one_end_to_the_other_the_line_is_there_within_twelve_rounds(
    name: KnobName, old: float, new: float
) -> None:
    for nodes in ((5, 12), (7, 7)):
        assert "L-bar +1.00 (+" in line(state(name, old, new, nodes=nodes))


def test_what_has_no_room_gives_way_from_the_end() -> None:
    told = state(nodes=(7, 10), by="d0")
    assert line(told, 76) == "D0 2 → 5: nodes 7 → 10, L-bar +1.00 (+0.07 to +2.22), tokens/s +36 %"
    assert line(told, 40) == "D0 2 → 5: nodes 7 → 10, L-bar +1.00"
    assert line(told, 30) == "D0 2 → 5: nodes 7 → 10"
    for width in range(1, 130):
        assert width_of(consequence_line(Scene(told), width)) == width


def test_many_knobs_at_once_are_counted() -> None:
    turns = [turned("tau_h", 22, 0.9, 0.8), turned("tau_l", 22, 0.4, 0.3), turned("d0", 22, 5, 4)]
    assert line(state(later=turns)).startswith("3 knobs turned")


@pytest.mark.parametrize(
    ("by", "told"),
    [
        ("n_max", "N_max hides it: d opens its slider"),
        ("rho_stop", "rho_stop hides it: d opens its slider"),
        ("cost", "cost hides it: w watches a method without it"),
        ("length", "length hides it: n goes to the next prompt"),
        ("context", "context hides it: n goes to the next prompt"),
    ],
)
def test_a_rule_that_ends_the_trees_instead_is_named_with_the_key_that_frees_the_knob(by: Limit, told: str) -> None:
    assert f"nodes 7 → 7, {told}, L-bar" in line(state(by=by))
    assert "hides" not in line(state(by=by, nodes=(7, 10)))
    assert "hides" not in line(state(by=by, count=9))


def test_a_knob_that_another_with_keys_of_its_own_hides_names_these() -> None:
    assert "D0 hides it: - = turn it" in line(state("d_max", 8, 12, by="d0"))


def test_a_knob_that_ends_the_trees_itself_is_not_hidden() -> None:
    assert "hides" not in line(state(by="d0"))
    assert "hides" not in line(state(by=None))


def test_where_no_rule_ends_most_trees_none_hides_the_knob() -> None:
    after = rounds(range(12, 22), more=1)
    mixed = [*limited(after[:4], "n_max"), *limited(after[4:7], "rho_stop"), *limited(after[7:], "d0")]
    assert "hides" not in line(state(count=0, later=mixed))


def test_what_ends_paths_does_not_hide_how_many_guesses_are_made() -> None:
    assert "hides" not in line(state("tau_h", 0.9, 0.8, by="rho_stop"))
    assert "N_max hides it" in line(state("tau_h", 0.9, 0.8, by="n_max"))


@pytest.mark.parametrize(
    ("name", "parameters", "told"),
    [
        ("tau_h", {"branching": [2, 2, 3]}, "B_min = B_mid hides it: d opens its slider"),
        ("tau_l", {"branching": [1, 3, 3]}, "B_mid = B_max hides it: d opens its slider"),
        ("d0", {"rho_stop": 0.5, "rho_deep": 0.5}, "rho_deep hides it: d opens its slider"),
    ],
)
def test_values_of_other_knobs_under_which_a_knob_does_nothing_are_told_at_once(
    name: KnobName, parameters: dict[str, Any], told: str
) -> None:
    assert told in line(state(name, 0.9, 0.8, count=1, by=None, **parameters))


def test_a_knob_that_history_moves_on_names_the_key_of_history() -> None:
    moved = limited(rounds(range(14, 16)), "d0", d0=3.8)
    told = state(count=2, by="d0", later=moved, history=True)
    assert "history moves D0: h frees it" in line(told)
    assert "history" not in line(state(count=2, by="d0", history=True))
    rebound = KEYMAP.rebound({"history": ["f5"]})
    assert "history moves D0: f5 frees it" in line(told, keys=rebound)


def test_in_a_recording_the_rule_is_named_without_a_key() -> None:
    assert "nodes 7 → 7, N_max hides it, L-bar" in line(state(), replaying=True)


def test_with_room_for_one_note_the_consequence_stays_unless_a_was_pinned_by_hand() -> None:
    told = state()
    pin = Pin.of(state(count=0), "dynatree")
    page = lines(knobs(Scene(told, pinned=pin), 100, 2))
    assert page[1].strip().startswith("D0 2 → 5: nodes 7 → 7")
    page = lines(knobs(Scene(told, pinned=replace(pin, by_hand=True)), 100, 2))
    assert page[1].strip().startswith("A/B")


def test_beside_what_history_moved_back_the_consequence_is_told_where_there_are_two_rows() -> None:
    back = Knob(method="dynatree", round=14, name="d0", old=5, new=3.8, source="history")
    told = state(count=2, by="d0", later=[back, *limited(rounds(range(14, 16)), "d0", d0=3.8)], history=True)
    scene = Scene(told, pinned=Pin.of(state(count=0), "dynatree"))
    first, second = lines(notes(scene, 100, 2))
    assert first.startswith("history moves D0 back")
    assert second.startswith("D0 2 → 5")
    assert [row[:21] for row in lines(notes(scene, 100, 1))] == ["history moves D0 back"]
    assert len(notes(scene, 100, 3)) == 3
    assert notes(scene, 100, 0) == notes(scene, 100, -1)


def test_its_signs_have_ascii_names() -> None:
    row = consequence_line(Scene(state("tau_h", 0.9, 0.8)), 116)
    assert text_of(in_ascii([row])[0]).isascii()
