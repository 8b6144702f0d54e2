"""A recording can be played from any position; the screen then shows the same as after uninterrupted play."""

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from decoder.events import Event, Round, Run
from dynatui.sources.playback import TraceSource
from dynatui.state.run_state import Prompt, Record
from tests.dynatui.scripted_runs import rounds_shown, run, runs_of, state_of, story

WATCHED = "dynatree"
SECOND: list[Event] = [run(prompt="second"), *story()[1:]]
TWO_RUNS = [*story(), *SECOND]


@pytest.fixture
def source() -> TraceSource:
    return TraceSource(runs_of(TWO_RUNS), speed=1.0)


def newest_run(records: Iterable[Record]) -> list[Record]:
    """Records from the last prompt on, which the screen shows."""
    told = list(records)
    return told[max(i for i, record in enumerate(told) if isinstance(record, Prompt)) :]


def last_round(source: TraceSource) -> int:
    rounds = [record for record in newest_run(source.records) if isinstance(record, Round)]
    return next(event.round for event in reversed(rounds) if event.method == "dynatree")


def prompt(source: TraceSource) -> str:
    return next(record.prompt for record in reversed(source.records) if isinstance(record, Run))


def test_a_way_back_ends_with_the_round_before_and_a_way_forward_tells_nothing_twice(source: TraceSource) -> None:
    source.seek_round(WATCHED, 4)
    source.seek_round(WATCHED, 3)
    assert last_round(source) == 2
    source.seek_round(WATCHED, 0)
    assert source.records[-3:] == story()[:3]
    forward = TraceSource(runs_of(TWO_RUNS), speed=1.0)
    for seconds in (0.2, 0.45):
        forward.seek(seconds)
    assert sum(isinstance(record, Run) for record in forward.records) == 1


def test_it_plays_on_from_where_it_was_put(source: TraceSource) -> None:
    source.advance(0.0)
    source.seek(0.5)
    source.seek(0.15)
    source.advance(0.1)
    assert (last_round(source), source.played_s[0]) == (1, 0.25)
    for rounds in (4, 2):
        source.seek_round(WATCHED, rounds)
        source.play(0.1)
        assert last_round(source) == rounds


def test_a_search_stays_within_the_run_and_another_run_begins_at_once_even_while_held(source: TraceSource) -> None:
    source.seek(99.0)
    assert source.records[-1] == story()[-1]
    source.seek(-1.0)
    assert newest_run(source.records) == [Prompt(1, 2), *story()[:3]]
    source.set_paused(paused=True)
    source.go(1)
    assert (prompt(source), rounds_shown(source.records)) == ("second", 0)
    source.go(-1)
    assert prompt(source) == "Once upon"


def test_a_way_back_is_the_run_told_anew_up_to_there(source: TraceSource) -> None:
    source.seek(0.55)
    source.seek(0.25)
    assert newest_run(source.records) == [Prompt(1, 2), *(e for e in story() if _due_by(e, 0.25))]
    assert source.played_s[0] == 0.25


def _due_by(event: Event, seconds: float) -> bool:
    if isinstance(event, Round):
        return event.wall_s <= seconds
    return story().index(event) < 9  # a knob is due with the round before it


def test_the_rounds_of_any_method_can_be_searched_for_in_both_directions(source: TraceSource) -> None:
    for rounds, found in ((4, 4), (1, 1), (99, 6), (2, 2)):
        source.seek_round(WATCHED, rounds)
        assert last_round(source) == found - 1
        assert rounds_shown(source.records) == found
    source.seek_round("ar", 2)
    newest = source.records[-1]
    assert isinstance(newest, Round)
    assert (newest.method, newest.round) == ("ar", 1)
    assert (rounds_shown(source.records, "ar"), rounds_shown(source.records), source.length("ar")) == (2, 2, (6, 0.12))


def test_the_length_is_that_of_the_present_run_which_may_be_without_rounds(source: TraceSource) -> None:
    assert source.length(WATCHED) == (6, 0.12)
    source.go(1)
    assert source.length(WATCHED) == (6, 0.12)
    assert TraceSource(runs_of([run()])).length(WATCHED) == (0, 0.0)
    source = TraceSource(runs_of([run(), *story()]), speed=1.0)
    source.seek_round(WATCHED, 3)
    source.go(1)
    source.seek_round(WATCHED, 1)
    assert last_round(source) == 0
    assert source.length(WATCHED)[0] == 6


def test_after_the_last_run_the_show_stays() -> None:
    source = TraceSource(runs_of(story()), speed=1.0)
    for now in (0.0, 1.0, 1e6):
        source.advance(now)
    assert source.records == [Prompt(1, 1), *story()]
    assert source.played_s[0] == source.played_s[1]


MOVES: tuple[Callable[[TraceSource], None], ...] = (
    lambda source: source.seek_round(WATCHED, 1),
    lambda source: source.seek_round(WATCHED, 5),
    lambda source: source.seek_round(WATCHED, 9),
    lambda source: source.seek(0.0),
    lambda source: source.seek(0.31),
    lambda source: source.seek(9.0),
    lambda source: source.seek_round(WATCHED, 2),
    lambda source: source.play(0.17),
    lambda source: source.go(1),
    lambda source: source.go(-1),
)


@given(st.lists(st.sampled_from(range(len(MOVES))), max_size=30))
@settings(max_examples=60, deadline=None)
def test_wherever_it_was_put_the_screen_shows_what_a_straight_play_would(moves: list[int]) -> None:
    source = TraceSource(runs_of(TWO_RUNS), speed=1.0)
    source.play(0.0)
    for move in moves:
        MOVES[move](source)
    shown = newest_run(source.records)
    straight = story() if prompt(source) == "Once upon" else SECOND
    assert shown[1:] == straight[: len(shown) - 1]
    assert structs.asdict(state_of(source.records).run or run()) == structs.asdict(straight[0])
