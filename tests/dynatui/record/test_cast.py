"""An asciicast follows its format, with times that never decrease and a bounded number of frames."""

from itertools import pairwise
from typing import Any

import pytest
from msgspec import json, structs

from decoder.events import Event, Round
from dynatui.record.cast import FPS, MOST_FRAMES, cast, moments
from dynatui.state.run_state import RunState
from tests.dynatui.scripted_runs import plain_round, run, story, tree_round


def lines(**given: Any) -> list[Any]:
    told = {
        "frames": [(0.0, "a"), (0.5, "\x1b[1mé")],
        "size": (80, 24),
        "title": "t",
        "started_at": "2026-01-01T00:00:00Z",
    }
    return [json.decode(line) for line in cast(**{**told, **given})]


def at(seconds: list[float]) -> list[Event]:
    return [run(), *(structs.replace(tree_round(number), t=t) for number, t in enumerate(seconds))]


def test_the_first_line_tells_version_size_and_when_the_run_began() -> None:
    header = lines()[0]
    assert (header["version"], header["width"], header["height"], header["title"]) == (2, 80, 24, "t")
    assert header["timestamp"] == 1767225600
    assert header["idle_time_limit"] > 0


@pytest.mark.parametrize("started_at", ["", "yesterday", "9999-99-99T00:00:00Z"])
def test_a_time_that_is_none_is_left_out(started_at: str) -> None:
    assert "timestamp" not in lines(started_at=started_at)[0]


def test_every_other_line_is_a_time_and_what_is_sent() -> None:
    assert lines()[1:] == [[0.0, "o", "a"], [0.5, "o", "\x1b[1mé"]]


def test_a_frame_that_sends_nothing_has_no_line() -> None:
    assert len(lines(frames=[(0.0, "a"), (1.0, "")])) == 2


def test_frames_begin_with_the_run_and_end_with_all_of_it() -> None:
    found = list(moments(story(), RunState()))
    assert found[0].state.rounds == 0
    assert found[-1].state.rounds == sum(isinstance(e, Round) and e.method == "dynatree" for e in story())
    assert found[-1].state.done


def test_the_clock_is_the_watched_methods_own_decode_time() -> None:
    events: list[Event] = [run(), structs.replace(plain_round("ar", 0), t=9.0), structs.replace(tree_round(0), t=0.5)]
    assert [moment.seconds for moment in moments(events, RunState())] == [0.0, 0.5, 0.5]
    assert [moment.seconds for moment in moments(events, RunState(chosen="ar"))] == [0.0, 9.0, 9.0]


def test_slow_motion_takes_as_long_as_on_the_screen() -> None:
    assert [moment.seconds for moment in moments(at([1.0]), RunState(), speed=0.25)] == [0.0, 4.0, 4.0]


def test_frames_are_a_tenth_of_a_second_apart_at_least() -> None:
    times = [moment.seconds for moment in moments(at([0.01 * n for n in range(500)]), RunState())]
    assert all(b - a >= 1 / FPS - 1e-9 for a, b in pairwise(times[:-1]))
    assert len(times) > 40


def test_a_long_run_has_no_more_frames_than_a_short_one() -> None:
    assert len(list(moments(at([60.0 * n for n in range(3 * MOST_FRAMES)]), RunState()))) <= MOST_FRAMES + 2


def test_times_of_a_hostile_recording_never_fall_and_stay_finite() -> None:
    times = [moment.seconds for moment in moments(at([0.5, 0.1, -3.0, 1e300, float("nan"), 0.7]), RunState())]
    assert times == sorted(times)
    assert times[-1] == 0.7
