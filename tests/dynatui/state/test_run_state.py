"""The fold from records to the state of a run, any round of it shown again, and the log of the session."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

import pytest
from msgspec import structs

from decoder.analysis.metrics import fold
from decoder.events import End, Event, Knob, Run, Summary
from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.prompt import with_category
from decoder.tree import Origin, depths
from dynatui.state import session_log
from dynatui.state.lane import IN_A_ROW, Curve, LaneState
from dynatui.state.run_state import Failure, Loading, Prompt, Record, RunState, apply
from dynatui.state.session_log import SessionLog
from dynatui.state.timeline import Timeline, TimelinePosition, Viewpoint
from tests.dynatui.scripted_runs import HOSTILE, plain_round, run, state_of, story, tree_round
from tests.dynatui.turned_runs import turned

TREE: list[Event] = [run(), tree_round(0)]
HISTORY: list[Event] = [turned("tau_l", 1, 0.4, 0.3), tree_round(1), turned("d0", 2, 5.0, 6.0, "history")]


def decoded(*records: Record, methods: Sequence[str] = ("dynatree", "ar")) -> RunState:
    return state_of([run(methods), *records])


def spans(state: RunState) -> list[tuple[str, str]]:
    return [(token.text, token.origin) for token in state.lane.tokens]


def marks(lane: LaneState) -> list[tuple[object, ...]]:
    return [(mark.round, mark.name, mark.old, mark.new, mark.token) for mark in lane.marks]


def of_fixed(name: str, old: float, new: float) -> Knob:
    return structs.replace(turned("d0", 1, old, new), method="fixed", name=name)


def test_the_text_carries_each_tokens_origin_and_its_share_of_the_round_s_time() -> None:
    state = decoded(tree_round(0), tree_round(1))
    assert state.prompt_text == "Once upon"
    assert spans(state)[:3] == [(" a", "accepted"), ("t", "accepted"), (" a time", "bonus")]
    assert [token.spent_s for token in state.lane.tokens[3:]] == pytest.approx([0.02 / 3] * 3)
    hidden = structs.replace(plain_round("hf", 0), draft_forwards=None)
    assert spans(decoded(hidden, methods=("hf",))) == [(" at", "plain")]


@pytest.mark.parametrize(
    ("methods", "chosen", "watched"),
    [
        (("dynatree", "ar"), "", "dynatree"),
        (("dynatree", "ar"), "ar", "ar"),
        (("dynatree", "ar"), "linear", "dynatree"),
        (("ar", "dynatree"), "", "ar"),
    ],
)
def test_the_first_method_is_watched_until_another_one_of_the_run_is_chosen(
    methods: tuple[str, ...], chosen: str, watched: str
) -> None:
    state = structs.replace(decoded(tree_round(0), plain_round("ar", 0, " x"), methods=methods), chosen=chosen)
    assert (state.watched, state.rounds) == (watched, 1)
    assert (spans(state) == [(" x", "bonus")]) is (watched == "ar")


def test_a_new_run_begins_afresh_but_keeps_its_place_among_the_prompts() -> None:
    state = state_of([Prompt(2, 5), *story(), run()])
    assert (state.rounds, state.lane.marks, state.lane.curves.d0.points[:], state.summary) == (0, (), (), None)
    assert state.prompt == Prompt(2, 5)


def test_curves_are_means_over_the_window() -> None:
    none = structs.replace(tree_round(0), accepted=[], committed=[100], text=" x")
    curves = decoded(none, tree_round(1)).lane.curves
    assert curves.tokens.points == (1.0, 2.0)
    assert curves.acceptance.points == (0.0, (2 / 3) / 2)


def test_a_round_without_a_draft_leaves_acceptance_where_it_was_and_before_the_first_draft_it_is_not_known() -> None:
    alone = structs.replace(plain_round("dynatree", 1), knobs=tree_round(1).knobs)
    lane = decoded(tree_round(0), alone, structs.replace(alone, round=2), tree_round(3)).lane
    assert lane.curves.acceptance.points[:] == pytest.approx((2 / 3,) * 4)
    assert lane.shares == lane.ruled == pytest.approx((2 / 3, 2 / 3))
    assert lane.curves.tokens.points == (3, 2, 5 / 3, 5 / 3)
    lane = decoded(plain_round("dynatree", 0)).lane
    assert (lane.acceptance, lane.curves.acceptance.points[:]) == (None, (0.0,))


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
    lane = decoded(mixed, alone).lane
    left = max(level for level, origin in zip(levels, origins, strict=True) if origin != "lookup")
    assert lane.shares == pytest.approx((2 / 3, 2 / 3))
    assert lane.ruled == pytest.approx(((len(event.accepted) - 1) / left,))


def test_a_turned_knob_is_marked_where_it_came_into_force_and_a_move_of_history_is_not() -> None:
    lane = state_of(story()).lane
    assert marks(lane) == [(3, "tau_h", 0.9, 0.8, 9)]
    assert lane.knobs is not None
    assert lane.knobs.tau_h == 0.8
    lane = decoded(tree_round(0), *HISTORY[2:]).lane
    assert lane.marks == ()
    assert lane.knobs is not None
    assert lane.knobs.d0 == 6.0


def test_every_turn_is_noted_with_historys_reason_and_again_after_history_moved_it() -> None:
    mine, moved = decoded(tree_round(0), *HISTORY).lane.changes
    assert (mine.name, mine.by_user, mine.acceptance) == ("tau_l", True, None)
    assert (moved.name, moved.by_user) == ("d0", False)
    assert moved.acceptance == pytest.approx(2 / 3)
    again: list[Event] = [turned("tau_h", 1, 0.9, 0.8), tree_round(1), turned("tau_h", 2, 0.81, 0.8)]
    assert len(decoded(tree_round(0), *again).lane.changes) == 2


def test_a_turn_belongs_to_the_method_that_tells_it_and_is_marked_at_its_round_and_token() -> None:
    ahead = [tree_round(number) for number in range(5)]
    behind = structs.replace(tree_round(0), method="fixed")
    turns = [of_fixed("fixed_depth", 5, 3), of_fixed("tau", 0.05, 0.1)]
    lanes = decoded(*ahead, behind, *turns, methods=("dynatree", "fixed")).lanes
    assert (lanes["dynatree"].marks, lanes["dynatree"].changes, lanes["dynatree"].settings["tau"]) == ((), (), 0.05)
    assert marks(lanes["fixed"])[0] == (1, "fixed_depth", 5, 3, 3)
    assert lanes["fixed"].settings["tau"] == 0.1
    other = structs.replace(HISTORY[2], method="alg1")
    lane = decoded(tree_round(0), other, methods=("dynatree", "alg1")).lane
    assert lane.changes == ()
    assert lane.knobs is not None
    assert lane.knobs.d0 == 5.0


@pytest.mark.parametrize(
    ("turns", "found"),
    [
        (
            [turned("d0", 1, 5.6, 4.6), turned("d0", 1, 4.6, 3.6), tree_round(1), turned("d0", 2, 3.6, 1)],
            [("d0", 5.6, 1)],
        ),
        (
            [turned("d0", 1, 5, 4), *map(tree_round, range(1, IN_A_ROW + 1)), turned("d0", IN_A_ROW + 1, 4, 3)],
            [("d0", 5, 4), ("d0", 4, 3)],
        ),
        (
            [turned("d0", 1, 5, 4), turned("tau_h", 1, 0.9, 0.8), turned("d0", 1, 4, 3)],
            [("d0", 5, 4), ("tau_h", 0.9, 0.8), ("d0", 4, 3)],
        ),
        ([turned("d0", 1, 5, 4), turned("d0", 1, 4, 5)], []),
    ],
    ids=["in a row", "far from each other", "of two knobs", "there and back"],
)
def test_turns_of_one_knob_in_a_row_are_one_mark(turns: list[Event], found: list[tuple[str, float, float]]) -> None:
    lane = decoded(tree_round(0), *turns).lane
    assert [(mark.name, mark.old, mark.new) for mark in lane.marks] == found
    assert len(found) != 1 or (lane.marks[0].round, lane.marks[0].token) == (2, 6)
    assert found or lane.last_turn == 1


def test_the_settings_are_those_of_each_method() -> None:
    parameters: Mapping[str, dict[str, object]] = {
        "dynatree": asdict(DynaTree()),
        "linear": asdict(Linear(k=7)),
        "fixed": asdict(Fixed(depth=4, branching=3, tau=0.2)),
    }
    lanes = state_of([structs.replace(run(), methods=parameters)]).lanes
    shared = {"temperature": 0, "top_p": 1}
    assert lanes["linear"].settings == {"k": 7, "p_min": 0, **shared}
    fixed = {"fixed_depth": 4, "fixed_branching": 3, "fixed_tau": 0.2, "n_max": 256}
    assert lanes["fixed"].settings == {**fixed, **shared}
    own = lanes["dynatree"].settings
    assert (own["b_min"], own["b_mid"], own["b_max"], own["tau"]) == (1, 2, 3, 0.05)
    assert (own["selection"], own["history"]) == (0, 1)


def test_history_can_be_switched_off() -> None:
    lanes = [state_of(events).lane for events in ([run()], [*TREE, turned("history", 1, 1, 0)])]
    assert [lane.history for lane in lanes] == [True, False]


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
    names = dict.fromkeys(("prompt", "target", "draft", "device", "dtype"), HOSTILE)
    begun: Run = structs.replace(run(), **names, methods={HOSTILE: {}})
    event = structs.replace(tree_round(0), method=HOSTILE, pieces=[HOSTILE] * 6, text=HOSTILE)
    records: list[Event] = [begun, event, End(method=HOSTILE, reason="error", error=HOSTILE)]
    summary = Summary(methods={HOSTILE: fold(records).figures()[HOSTILE]})
    state = state_of([Loading(HOSTILE), *records, summary, Failure(HOSTILE, 3)])
    newest, told = state.lane.newest, state.run
    assert newest is not None
    assert told is not None
    shown = repr((state.lane.tokens, state.prompt_text, newest.pieces, state.loading, state.failure, state.ends))
    shown += repr((state.watched, told.target, told.draft, told.device, told.dtype, list(state.figures())))
    assert not [raw for raw in ("\\x1b", "\\x9b", "\\u202e", "\\x07", "\\x7f", "\\r") if raw in shown]


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


def test_an_empty_state_has_answers_to_everything_and_events_of_unknown_methods_are_taken_in() -> None:
    state = RunState()
    assert (state.watched, state.rounds, state.done, dict(state.figures())) == ("", 0, False, {})
    assert decoded(structs.replace(tree_round(0), method="stray")).rounds == 0


MOST = session_log._MOST_SETTINGS
FULL = {n_max: 1 + n_max % 3 for n_max in range(1, MOST + 1)}
THREES, TWOS = (dict.fromkeys(FULL, rounds) for rounds in (3, 2))


def log_of(records: Iterable[Record]) -> SessionLog:
    state, log = RunState(), SessionLog()
    for record in records:
        state = apply(state, record)
        log = log.apply(record, state)
    return log


@pytest.mark.parametrize(
    ("rounds", "kept"),
    [
        ([*FULL.items()], FULL),
        ([*(THREES | {20: 1}).items(), (500, 2)], {n_max: 3 for n_max in THREES if n_max != 20} | {500: 2}),
        ([*TWOS.items(), (500, 1)], {n_max: 2 for n_max in TWOS if n_max != 1} | {500: 1}),
        ([*TWOS.items(), (7, 3)], TWOS | {7: 5}),
    ],
    ids=["room for all", "the fewest rounds leave", "a new one does not leave", "one that comes back is counted on"],
)
def test_the_settings_with_the_most_rounds_are_kept(rounds: list[tuple[int, int]], kept: dict[int, int]) -> None:
    records: list[Record] = [run()]
    number = 0
    for n_max, count in rounds:
        records += [turned("n_max", number, 0, n_max), *map(tree_round, range(number, number + count))]
        number += count
    found = log_of(records).tried
    assert {round(dict(setting.knobs)["n_max"]): tried.rounds for setting, tried in found.items()} == kept


def test_values_passed_on_the_way_to_another_are_no_settings_that_were_tried() -> None:
    records: list[Record] = [run(), *map(tree_round, range(20))]
    records += [turned("n_max", 20, 0, 8), tree_round(20), turned("n_max", 21, 0, 9), tree_round(21)]
    further: list[Record] = [turned("n_max", 22, 0, 10), tree_round(22)]
    before, after = (log_of(records + more).settings_tried() for more in (list[Record](), further))
    assert before
    assert after
    n_max = [[dict(row.setting.knobs)["n_max"] for row in tried.rows] for tried in (before, after)]
    assert n_max == [[n_max[0][0], 9], [n_max[0][0], 10]]


def test_a_prompt_that_failed_before_its_run_has_no_result_of_another() -> None:
    log = log_of([Prompt(1, 3), run(), tree_round(0), Prompt(2, 3), Prompt(3, 3), run(), tree_round(0)])
    assert list(log.results) == [1]
    assert [line.number for line in log.all_runs()] == [3]


def test_a_category_stands_before_the_opening_of_a_prompt() -> None:
    assert session_log.opening_of(with_category("Once\nupon", "tale")) == "[tale] Once upon"
    assert session_log.opening_of("Once") == "Once"
    assert "\x1b" not in session_log.opening_of(with_category("Once", "\x1b[2J"))


WATCHED = "dynatree"
TWO_ROUNDS = (run(), tree_round(0), tree_round(1))


def taken(records: list[Record]) -> Timeline:
    timeline = Timeline()
    for record in records:
        timeline.take(record)
    return timeline


@pytest.mark.parametrize("rounds", [0, 1, 5, 40, 100])
def test_every_round_is_shown_again_as_it_was(rounds: int) -> None:
    records: list[Record] = [Prompt(1, 1), *story(rounds)]
    timeline, state, expected = taken(records), RunState(), list[RunState]()
    for record in records:
        before, state = state, apply(state, record)
        if state.rounds > before.rounds:
            expected.append(state)
    assert timeline.rounds(WATCHED) == rounds
    assert [timeline.at(WATCHED, place) for place in range(1, rounds + 1)] == expected
    first = timeline.at(WATCHED, 0)
    assert first.run is not None
    assert first.rounds == 0


def test_places_beyond_the_ends_are_the_ends() -> None:
    timeline = taken([*story(4)])
    assert timeline.at(WATCHED, -3) == timeline.at(WATCHED, 0)
    assert timeline.at(WATCHED, 99) == timeline.at(WATCHED, 4)


def gazing(*records: Record) -> Viewpoint:
    viewpoint = Viewpoint()
    for record in records:
        viewpoint.take(record)
    return viewpoint


def test_a_view_that_is_held_stands_still_while_the_work_goes_on() -> None:
    viewpoint = gazing(*TWO_ROUNDS[:2])
    viewpoint.hold()
    before = viewpoint.state
    viewpoint.take(tree_round(1))
    assert viewpoint.state is before
    assert viewpoint.work.rounds(WATCHED) == 2
    viewpoint.follow()
    assert viewpoint.state.rounds == 2


def test_another_method_is_watched_at_the_same_place() -> None:
    viewpoint = gazing(run(), tree_round(0), plain_round("ar", 0), tree_round(1), plain_round("ar", 1))
    viewpoint.look_at(1)
    viewpoint.choose("ar")
    assert (viewpoint.state.watched, viewpoint.state.rounds, viewpoint.place().rounds) == ("ar", 0, 2)
    viewpoint.look_at(1)
    assert (viewpoint.state.rounds, len(viewpoint.state.lanes["dynatree"].past)) == (1, 1)
    viewpoint.follow()
    assert (viewpoint.state.watched, viewpoint.state.rounds) == ("ar", 2)
    viewpoint.take(run(prompt="Another"))
    assert viewpoint.state.watched == "ar", "in the next run too"


def test_a_run_that_is_looked_at_stays_when_the_next_begins() -> None:
    viewpoint = gazing(*TWO_ROUNDS)
    viewpoint.look_at(1)
    viewpoint.take(run(prompt="Another"))
    viewpoint.take(tree_round(0))
    assert (viewpoint.state.prompt_text, viewpoint.state.rounds) == ("Once upon", 1)
    viewpoint.look_at(2)
    assert viewpoint.state.rounds == 2
    viewpoint.follow()
    assert viewpoint.state.prompt_text == "Another"


def test_the_place_says_where_one_looks_and_how_much_there_is() -> None:
    def told(place: TimelinePosition) -> tuple[int, int, bool]:
        return place.round, place.rounds, place.live

    viewpoint = gazing(*TWO_ROUNDS)
    assert told(viewpoint.place()) == (2, 2, True)
    viewpoint.look_at(1)
    assert told(viewpoint.place(7)) == (1, 7, False)
