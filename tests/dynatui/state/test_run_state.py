"""Tests of the fold from records to the state of a run."""

from dataclasses import asdict

import pytest
from msgspec import structs

from decoder.analysis.metrics import fold
from decoder.events import End, Event, Knob, Round, Summary
from decoder.knobs import KnobName
from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.tree import Origin, depths
from dynatui.state.lane import IN_A_ROW, Curve
from dynatui.state.run_state import Failure, Loading, Prompt, RunState, apply
from tests.dynatui.scripted_runs import HOSTILE, plain_round, run, state_of, story, tree_round


def spans(state: RunState) -> list[tuple[str, str]]:
    return [(token.text, token.origin) for token in state.lane.tokens]


def test_the_text_carries_each_tokens_origin() -> None:
    state = state_of([run(), tree_round(0)])
    assert state.prompt_text == "Once upon"
    assert spans(state) == [(" a", "accepted"), ("t", "accepted"), (" a time", "bonus")]


def test_any_method_can_be_watched() -> None:
    state = structs.replace(state_of([run(), tree_round(0), plain_round("ar", 0, " x")]), chosen="ar")
    assert (state.watched, spans(state), state.rounds) == ("ar", [(" x", "bonus")], 1)


def test_a_method_that_this_run_lacks_cannot_be_watched() -> None:
    assert structs.replace(state_of([run()]), chosen="linear").watched == "dynatree"


def test_the_first_method_is_watched_until_another_is_chosen() -> None:
    state = state_of([run(("ar", "dynatree")), tree_round(0), plain_round("ar", 0, " x")])
    assert state.watched == "ar"
    assert spans(state) == [(" x", "bonus")]


def test_a_method_that_hides_its_draft_claims_no_origin() -> None:
    hidden = structs.replace(plain_round("hf", 0), draft_forwards=None)
    assert spans(state_of([run(("hf",)), hidden])) == [(" at", "plain")]


def test_a_round_shares_its_own_time_among_its_tokens() -> None:
    state = state_of([run(), tree_round(0), tree_round(1)])
    assert [token.spent_s for token in state.lane.tokens[3:]] == pytest.approx([0.02 / 3] * 3)


def test_a_new_run_begins_afresh_but_keeps_its_place_among_the_prompts() -> None:
    state = state_of([Prompt(2, 5), *story(), run()])
    assert (state.rounds, state.lane.marks, state.lane.curves.d0.points[:], state.summary) == (0, (), (), None)
    assert state.prompt == Prompt(2, 5)


def test_curves_are_means_over_the_window() -> None:
    none = structs.replace(tree_round(0), accepted=[], committed=[100], text=" x")
    state = state_of([run(), none, tree_round(1)])
    assert state.lane.curves.tokens.points == (1.0, 2.0)
    assert state.lane.curves.acceptance.points == (0.0, (2 / 3) / 2)


def test_a_round_without_a_draft_leaves_acceptance_where_it_was() -> None:
    alone = structs.replace(plain_round("dynatree", 1), knobs=tree_round(1).knobs)
    state = state_of([run(), tree_round(0), alone, structs.replace(alone, round=2), tree_round(3)])
    assert state.lane.curves.acceptance.points[:] == pytest.approx((2 / 3,) * 4)
    assert state.lane.shares == state.lane.ruled == pytest.approx((2 / 3, 2 / 3))
    assert state.lane.curves.tokens.points == (3, 2, 5 / 3, 5 / 3)


def test_history_goes_by_what_rules_have_drafted_beside_lookups() -> None:
    event = tree_round(0)
    levels = depths(event.parents)
    deepest = max(event.accepted, key=levels.__getitem__)
    origins: list[Origin] = [
        "lookup" if deepest in (node, above) else "draft" for node, above in enumerate(event.parents)
    ]
    origins[0] = "root"
    mixed = structs.replace(event, origins=origins)
    alone = structs.replace(event, round=1, origins=["root", *["lookup"] * (len(levels) - 1)])
    lane = state_of([run(), mixed, alone]).lane
    left = max(level for level, origin in zip(levels, origins, strict=True) if origin != "lookup")
    assert lane.shares == pytest.approx((2 / 3, 2 / 3))
    assert lane.ruled == pytest.approx(((len(event.accepted) - 1) / left,))


def test_before_the_first_draft_acceptance_is_not_known() -> None:
    state = state_of([run(), plain_round("dynatree", 0)])
    assert (state.lane.acceptance, state.lane.curves.acceptance.points[:]) == (None, (0.0,))


def test_a_turned_knob_is_marked_where_it_came_into_force() -> None:
    state = state_of(story())
    assert [(mark.round, mark.name, mark.old, mark.new) for mark in state.lane.marks] == [(3, "tau_h", 0.9, 0.8)]
    assert state.lane.knobs is not None
    assert state.lane.knobs.tau_h == 0.8


def test_history_moves_knobs_without_a_mark() -> None:
    moved = Knob(method="dynatree", round=1, name="d0", old=5.0, new=6.0, source="history")
    state = state_of([run(), tree_round(0), moved])
    assert state.lane.marks == ()
    assert state.lane.knobs is not None
    assert state.lane.knobs.d0 == 6.0


def test_every_turn_is_noted_with_historys_reason() -> None:
    mine = Knob(method="dynatree", round=1, name="tau_l", old=0.4, new=0.3, source="user")
    moved = Knob(method="dynatree", round=2, name="d0", old=5.0, new=6.0, source="history")
    state = state_of([run(), tree_round(0), mine, tree_round(1), moved])
    assert [(change.name, change.by_user) for change in state.lane.changes] == [("tau_l", True), ("d0", False)]
    assert state.lane.changes[0].acceptance is None
    assert state.lane.changes[1].acceptance == pytest.approx(2 / 3)


def test_a_turn_belongs_to_the_method_that_tells_it() -> None:
    turned = Knob(method="fixed", round=1, name="tau", old=0.05, new=0.1, source="user")
    state = state_of([run(("dynatree", "fixed")), tree_round(0), turned])
    assert (state.lane.changes, state.lane.settings["tau"]) == ((), 0.05)
    assert state.lanes["fixed"].settings["tau"] == 0.1


def test_a_turn_is_marked_at_the_round_and_token_of_the_method_that_tells_it() -> None:
    ahead: list[Event] = [tree_round(number) for number in range(5)]
    behind = structs.replace(tree_round(0), method="fixed")
    turned = Knob(method="fixed", round=1, name="fixed_depth", old=5, new=3, source="user")
    state = state_of([run(("dynatree", "fixed")), *ahead, behind, turned])
    assert state.lanes["dynatree"].marks == ()
    assert [(mark.round, mark.token) for mark in state.lanes["fixed"].marks] == [(1, 3)]


def turn(number: int, old: float, new: float, name: KnobName = "d0") -> Knob:
    return Knob(method="dynatree", round=number, name=name, old=old, new=new, source="user")


def test_turns_of_one_knob_in_a_row_are_one_mark_from_the_value_that_the_hand_left() -> None:
    turns: list[Event] = [turn(1, 5.6, 4.6), turn(1, 4.6, 3.6), tree_round(1), turn(2, 3.6, 1)]
    (mark,) = state_of([run(), tree_round(0), *turns]).lane.marks
    assert (mark.round, mark.old, mark.new, mark.token) == (2, 5.6, 1, 6)


def test_turns_of_one_knob_far_from_each_other_are_two_marks() -> None:
    rounds = [tree_round(number) for number in range(1, IN_A_ROW + 1)]
    marks = state_of([run(), tree_round(0), turn(1, 5, 4), *rounds, turn(IN_A_ROW + 1, 4, 3)]).lane.marks
    assert [(mark.old, mark.new) for mark in marks] == [(5, 4), (4, 3)]


def test_turns_of_two_knobs_are_two_marks() -> None:
    marks = state_of([run(), tree_round(0), turn(1, 5, 4), turn(1, 0.9, 0.8, "tau_h"), turn(1, 4, 3)]).lane.marks
    assert [mark.name for mark in marks] == ["d0", "tau_h", "d0"]


def test_a_knob_that_was_turned_there_and_back_leaves_no_mark() -> None:
    lane = state_of([run(), tree_round(0), turn(1, 5, 4), turn(1, 4, 5)]).lane
    assert lane.marks == ()
    assert lane.last_turn == 1


def test_a_turn_set_again_after_history_moved_it_is_noted_again() -> None:
    again = Knob(method="dynatree", round=1, name="tau_h", old=0.9, new=0.8, source="user")
    state = state_of([run(), tree_round(0), again, tree_round(1), structs.replace(again, round=2, old=0.81)])
    assert len(state.lane.changes) == 2


def test_another_methods_history_moves_nothing_here() -> None:
    other = Knob(method="alg1", round=1, name="d0", old=5.0, new=6.0, source="history")
    state = state_of([run(("dynatree", "alg1")), tree_round(0), other])
    assert state.lane.changes == ()
    assert state.lane.knobs is not None
    assert state.lane.knobs.d0 == 5.0


def test_the_settings_are_those_of_each_method() -> None:
    parameters = {
        "dynatree": asdict(DynaTree()),
        "linear": asdict(Linear(k=7)),
        "fixed": asdict(Fixed(depth=4, branching=3, tau=0.2)),
    }
    lanes = state_of([structs.replace(run(), methods=parameters)]).lanes
    shared = {"temperature": 0, "top_p": 1}
    assert lanes["linear"].settings == {"k": 7, **shared}
    fixed = {"fixed_depth": 4, "fixed_branching": 3, "fixed_tau": 0.2, "n_max": 256}
    assert lanes["fixed"].settings == {**fixed, **shared}
    own = lanes["dynatree"].settings
    assert (own["b_min"], own["b_mid"], own["b_max"], own["tau"]) == (1, 2, 3, 0.05)
    assert (own["selection"], own["history"]) == (0, 1)


def test_history_can_be_switched_off() -> None:
    off = Knob(method="dynatree", round=1, name="history", old=1, new=0, source="user")
    assert state_of([run()]).lane.history is True
    assert state_of([run(), tree_round(0), off]).lane.history is False


def test_figures_are_those_of_the_fold_and_at_the_end_those_of_the_engine() -> None:
    events = story()
    assert state_of(events[:-1]).figures() == fold(events[:-1]).figures()
    told = structs.replace(fold(events).figures()["dynatree"], near_tie=True)
    assert state_of([*events[:-1], Summary(methods={"dynatree": told})]).figures()["dynatree"].near_tie is True


def test_a_failure_stays_until_the_next_prompt_begins() -> None:
    state = state_of([Failure("no such model", 3)])
    assert state.failure == Failure("no such model", 3)
    assert apply(state, Prompt(1, 1)).failure is None


def test_progress_of_the_last_loading_step_replaces_it() -> None:
    state = state_of([Loading("reading", "1 of 2"), Loading("reading", "2 of 2"), Loading("packing")])
    assert state.loading == (Loading("reading", "2 of 2"), Loading("packing"))


def test_nothing_hostile_enters_the_state() -> None:
    hostile_run = structs.replace(
        run(), prompt=HOSTILE, target=HOSTILE, draft=HOSTILE, device=HOSTILE, dtype=HOSTILE, methods={HOSTILE: {}}
    )
    event = structs.replace(tree_round(0), method=HOSTILE, pieces=[HOSTILE] * 6, text=HOSTILE)
    records: list[Event] = [hostile_run, event, End(method=HOSTILE, reason="error", error=HOSTILE)]
    state = state_of([Loading(HOSTILE), *records, Summary(methods={HOSTILE: fold(records).figures()[HOSTILE]})])
    state = apply(state, Failure(HOSTILE, 3))
    assert state.lane.newest is not None
    shown = repr(
        (
            state.lane.tokens,
            state.prompt_text,
            state.lane.newest.pieces,
            state.loading,
            state.failure,
            state.ends,
            state.watched,
        )
    )
    assert state.run is not None
    shown += repr((state.run.target, state.run.draft, state.run.device, state.run.dtype, list(state.figures())))
    for raw in ("\\x1b", "\\x9b", "\\u202e", "\\x07", "\\x7f", "\\r"):
        assert raw not in shown


def test_wild_parameters_of_a_recording_fall_back() -> None:
    wild = structs.replace(run(), methods={"dynatree": {"d_max": "eight", "window": 1e300, "target_acceptance": None}})
    lane = state_of([wild]).lane
    assert (lane.parameter("d_max", 8), lane.window, lane.parameter("target_acceptance", 0.7)) == (8, 10, 0.7)


def test_a_curve_is_bounded_and_keeps_its_shape() -> None:
    curve = Curve()
    for number in range(10_000):
        curve = curve.add(float(number), number + 1)
    assert len(curve.points) <= 512
    assert len(curve.points) * curve.stride + len(curve.waiting) == 10_000
    middle = (curve.stride - 1) / 2
    assert curve.points == tuple(place * curve.stride + middle for place in range(len(curve.points)))
    assert len(curve.ends) == len(curve.points)
    assert curve.ends[-1] == 10_000 - len(curve.waiting)


def test_an_empty_state_has_answers_to_everything() -> None:
    state = RunState()
    assert (state.watched, state.rounds, state.done, dict(state.figures())) == ("", 0, False, {})


def test_events_of_unknown_methods_are_taken_in() -> None:
    stray: list[Round] = [structs.replace(tree_round(0), method="stray")]
    assert state_of([run(), *stray]).rounds == 0
