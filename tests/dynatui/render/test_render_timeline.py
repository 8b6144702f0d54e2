"""Tests of the timeline, and of the round that a click on it selects."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoder.events import Knob
from dynatui.render.scene import Scene
from dynatui.render.timeline import hit, timeline
from dynatui.state.timeline import TimelinePosition
from tests.dynatui.render.golden import golden
from tests.dynatui.scripted_runs import lines, running, text_of


def placed(number: int, rounds: int, *, live: bool = False) -> Scene:
    return replace(running(), place=TimelinePosition(number, rounds, 3.21, live=live))


def test_it_says_where_the_picture_is() -> None:
    line = lines(timeline(placed(42, 118), 120, 1))[0]
    assert "round 42 of 118 · 3.2 s · looking back" in line
    assert "live" in lines(timeline(placed(118, 118, live=True), 120, 1))[0]


@pytest.mark.parametrize(
    ("width", "words"), [(120, "looking ahead"), (80, "round 42 of 118 · 3.2 s · looking ahead"), (40, "42/118")]
)
def test_what_was_not_played_yet_is_ahead(width: int, words: str) -> None:
    scene = replace(running(), place=TimelinePosition(42, 118, 3.21, live=False, played=7))
    assert words in lines(timeline(scene, width, 1))[0]


@pytest.mark.parametrize(
    ("width", "words"), [(80, "round 42 of 118 · 3.2 s · looking back"), (40, "42/118"), (20, "42/118")]
)
def test_in_a_narrow_terminal_the_words_get_shorter(width: int, words: str) -> None:
    line = lines(timeline(placed(42, 118), width, 1))[0]
    assert words in line
    assert "●" in line


def test_turns_of_knobs_are_marked() -> None:
    turned = Knob(method="dynatree", round=3, name="tau_h", old=0.9, new=0.8, source="user")
    assert any(mark.round == turned.round for mark in running().state.lane.marks)
    line = lines(timeline(placed(6, 6, live=True), 80, 1))[0]
    assert "▲" in line
    assert line.index("▲") == pytest.approx((line.index("◀") + line.index("▶")) / 2, abs=1)


@given(st.integers(0, 5000), st.integers(1, 5000), st.integers(24, 200))
def test_a_click_on_the_ball_asks_for_its_round(number: int, rounds: int, width: int) -> None:
    number = min(number, rounds)
    line = lines(timeline(placed(number, rounds), width, 1))[0]
    cells = line.index("▶") - line.index("◀") - 1
    found = hit(placed(number, rounds), width, line.index("●"))
    assert found is not None
    assert abs(found - number) <= rounds / max(1, cells - 1)


def test_the_ends_are_the_first_and_the_last_round_and_beside_it_is_nothing() -> None:
    scene = placed(42, 118)
    line = lines(timeline(scene, 120, 1))[0]
    assert hit(scene, 120, line.index("◀")) == 0
    assert hit(scene, 120, line.index("▶")) == 118
    assert hit(scene, 120, line.index("◀") - 1) is None
    assert hit(scene, 120, line.index("▶") + 1) is None
    assert hit(scene, 9, 3) is None


def test_the_line_does_not_move_while_the_numbers_grow() -> None:
    ends = {text_of(timeline(placed(n, n, live=True), 100, 1)[0]).index("▶") for n in (1, 99, 100, 9999)}
    assert len(ends) == 1


test_golden = golden(
    {
        "before the first round there is none to name": lambda: timeline(placed(0, 118), 120, 1),
    }
)
