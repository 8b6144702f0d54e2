"""A recording can be played from any position; the screen then shows the same as after uninterrupted play."""

from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from decoder.events import Event, Round
from dynatui.sources.playback import TraceSource
from dynatui.state.run_state import Prompt, Record
from tests.dynatui.scripted_runs import rounds_shown, run, story

WATCHED = "dynatree"
RUNS: list[list[Event]] = [story(), [run(prompt="second"), *story()[1:]]]


def due(events: Iterable[Event]) -> list[float]:
    """When each event is due: with the last round before it."""
    times, now_s = list[float](), 0.0
    for event in events:
        now_s = event.wall_s if isinstance(event, Round) else now_s
        times.append(now_s)
    return times


DUE_S = due(story())
MOVES = st.one_of(
    st.tuples(st.sampled_from([WATCHED, "ar"]), st.sampled_from([-1, 0, 1, 2, 5, 9])),
    st.tuples(st.just("play"), st.just(0.17)),
    st.tuples(st.just("go"), st.sampled_from([1, -1])),
)
"""A number of a method's rounds to search for, seconds to play, or a step to another run."""


def newest_run(records: list[Record]) -> list[Record]:
    """Records from the last prompt on, which the screen shows."""
    return records[max(i for i, record in enumerate(records) if isinstance(record, Prompt)) :]


@given(st.lists(MOVES, max_size=30), st.booleans())
@settings(max_examples=200)
def test_wherever_it_was_put_the_screen_shows_what_a_straight_play_would(
    moves: list[tuple[str, float]],
    paused: bool,  # noqa: FBT001 - drawn
) -> None:
    source, number, at_s = TraceSource(RUNS, speed=1.0), 0, 0.0
    source.set_paused(paused=paused)
    source.play(0.0)
    for move, value in moves:
        so_far, shown = len(source.records), None
        match move:
            case "play":
                source.play(value)
                at_s += value
                if at_s > DUE_S[-1]:
                    return  # another run follows after a while
            case "go":
                source.go(int(value))
                number, at_s = (number + int(value)) % 2, 0.0
            case method:
                source.seek_round(method, int(value))
                rounds = [i for i, event in enumerate(story()) if isinstance(event, Round) and event.method == method]
                shown = rounds[min(int(value), len(rounds)) - 1] + 1 if value > 0 else 3
                at_s = DUE_S[shown - 1]
        shown = shown or sum(due_s <= at_s for due_s in DUE_S)
        prompt = Prompt(number + 1, 2)
        assert newest_run(source.records) == [prompt, *RUNS[number][:shown]]
        assert abs(source.played_s[0] - at_s) < 1e-9
        if move == "play":
            assert prompt not in source.records[so_far:], "a way forward tells nothing twice"


def test_it_plays_on_from_where_it_was_put() -> None:
    source = TraceSource(RUNS, speed=1.0)
    source.advance(0.0)
    source.seek_round(WATCHED, 6)
    source.seek_round(WATCHED, 1)
    source.advance(0.1)
    assert (rounds_shown(source.records), source.played_s[0]) == (2, DUE_S[3] + 0.1)


def test_the_length_is_that_of_the_present_run_which_may_be_without_rounds() -> None:
    source = TraceSource([[run()], story()], speed=1.0)
    assert source.length(WATCHED) == (0, 0.0)
    source.seek_round(WATCHED, 3)
    source.go(1)
    assert source.length(WATCHED) == source.length("ar") == (6, 0.12)
    source.seek_round(WATCHED, 1)
    assert rounds_shown(source.records) == 1


def test_after_the_last_run_the_show_stays() -> None:
    source = TraceSource([story()], speed=1.0)
    for now in (0.0, 1.0, 1e6):
        source.advance(now)
    assert source.records == [Prompt(1, 1), *story()]
    assert source.played_s[0] == source.played_s[1]
