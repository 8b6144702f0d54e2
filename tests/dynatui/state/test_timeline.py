"""Any round of a run can be shown again exactly as before."""

import pytest

from dynatui.state.run_state import Prompt, Record, RunState, apply
from dynatui.state.timeline import Timeline, TimelinePosition, Viewpoint
from tests.dynatui.scripted_runs import plain_round, run, story, tree_round

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
