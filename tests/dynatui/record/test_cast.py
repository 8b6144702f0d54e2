"""An asciicast follows its format, with times that never decrease and a bounded number of frames."""

from itertools import pairwise
from typing import Any

from msgspec import json, structs

from decoder.events import Event, Round
from dynatui.record.cast import FPS, MOST_FRAMES, cast, moments
from dynatui.state.run_state import RunState
from tests.dynatui.scripted_runs import plain_round, run, story, tree_round


def lines(**given: Any) -> list[Any]:
    usual = {"frames": [(0.0, "a")], "size": (80, 24), "title": "t", "started_at": "2026-01-01T00:00:00Z"}
    return [json.decode(line) for line in cast(**{**usual, **given})]


def at(seconds: list[float]) -> list[Event]:
    return [run(), *(structs.replace(tree_round(number), t=t) for number, t in enumerate(seconds))]


def test_the_first_line_tells_version_size_and_start_and_every_other_a_time_and_what_is_sent() -> None:
    header, *frames = lines(frames=[(0.0, "a"), (0.5, "\x1b[1mé"), (1.0, "")])
    assert (header["version"], header["width"], header["height"], header["title"]) == (2, 80, 24, "t")
    assert header["timestamp"] == 1767225600
    assert header["idle_time_limit"] > 0
    assert frames == [[0.0, "o", "a"], [0.5, "o", "\x1b[1mé"]]
    starts = ("", "yesterday", "9999-99-99T00:00:00Z")
    assert not any("timestamp" in lines(started_at=started_at)[0] for started_at in starts)


def test_frames_begin_with_the_run_and_end_with_all_of_it() -> None:
    found = list(moments(story(), RunState()))
    assert found[0].state.rounds == 0
    assert found[-1].state.rounds == sum(isinstance(e, Round) and e.method == "dynatree" for e in story())
    assert found[-1].state.done


def test_the_clock_is_the_watched_methods_own_decode_time_and_in_slow_motion_takes_as_long_as_on_the_screen() -> None:
    events: list[Event] = [run(), structs.replace(plain_round("ar", 0), t=9.0), structs.replace(tree_round(0), t=0.5)]
    clocks = [
        moments(events, RunState()),
        moments(events, RunState(chosen="ar")),
        moments(at([1.0]), RunState(), speed=0.25),
    ]
    assert [[moment.seconds for moment in found] for found in clocks] == [[0, 0.5, 0.5], [0, 9, 9], [0, 4, 4]]


def test_frames_are_a_tenth_of_a_second_apart_at_least() -> None:
    times = [moment.seconds for moment in moments(at([0.01 * n for n in range(500)]), RunState())]
    assert all(b - a >= 1 / FPS - 1e-9 for a, b in pairwise(times[:-1]))
    assert len(times) > 40


def test_frames_are_bounded_and_times_never_fall_however_long_or_hostile_the_run() -> None:
    assert len(list(moments(at([60.0 * n for n in range(3 * MOST_FRAMES)]), RunState()))) <= MOST_FRAMES + 2
    times = [moment.seconds for moment in moments(at([0.5, 0.1, -3.0, 1e300, float("nan"), 0.7]), RunState())]
    assert times == sorted(times)
    assert times[-1] == 0.7
