"""Frame times on fast and slow lines, and the meters; tests set the time."""

from itertools import pairwise

import pytest

from dynatui.render.scene import Meters
from dynatui.screen.panel_app import FrameRate
from tests.dynatui.screen.slow_line import FPS, SlowLine


def test_a_fast_line_gets_every_frame() -> None:
    line = SlowLine(frames_per_second=1000.0)
    assert line.run(10.0) == 100
    assert line.meters() == Meters(FPS)


def test_a_frame_waits_until_the_one_before_is_out() -> None:
    frame_rate = FrameRate(FPS)
    assert frame_rate.due(0.0, busy=False)
    assert not frame_rate.due(0.1, busy=True)
    assert frame_rate.due(0.2, busy=False)


def test_one_late_frame_changes_no_rate() -> None:
    line = SlowLine(frames_per_second=1000.0)
    line.frame_rate.due(0.05, busy=True)
    assert line.run(5.0) == 50


@pytest.mark.parametrize("frames_per_second", [6.0, 3.0, 1.0])
def test_a_slow_line_gets_as_many_frames_as_it_takes(frames_per_second: float) -> None:
    line = SlowLine(frames_per_second)
    line.run(20.0)
    assert frames_per_second / 2.5 <= line.run(20.0) / 20.0 <= frames_per_second
    assert line.meters().slow_line
    assert line.meters().fps < FPS


def test_a_line_that_recovers_gets_its_frames_back() -> None:
    line = SlowLine(frames_per_second=1.0)
    line.run(20.0)
    line.frames_per_second = 1000.0
    line.run(120.0)
    assert line.run(10.0) == 100
    assert not line.meters().slow_line


def test_a_line_that_hardly_keeps_up_is_not_tried_again_and_again() -> None:
    line = SlowLine(frames_per_second=6.0)
    line.run(120.0)
    skips = [line.frame_rate._skip for _ in range(300) if line.run(0.1) >= 0]
    assert sum(before != after for before, after in pairwise(skips)) <= 3


def test_a_terminal_that_takes_nothing_gets_no_frame_and_one_at_once_when_it_takes_again() -> None:
    line = SlowLine(frames_per_second=1000.0, free_at=60.0)
    assert line.run(59.0) == 0
    line.now = 60.0
    assert line.frame_rate.due(60.1, busy=False)


def test_the_meters_are_means_over_the_last_seconds() -> None:
    frame_rate = FrameRate(FPS)
    for tick in range(200):
        late = max(0, tick - 100)
        meters = frame_rate.meters(tick / 10, cpu_s=0.004 * late, sent_bytes=2000 * late)
    assert meters.ui_share == pytest.approx(0.04)
    assert meters.bytes_per_s == pytest.approx(20_000)


def test_the_meters_say_nothing_before_they_know() -> None:
    assert FrameRate(FPS).meters(0.0, cpu_s=1.0, sent_bytes=1) == Meters(FPS)


def test_the_meters_change_once_a_second() -> None:
    frame_rate = FrameRate(FPS)
    shown = {frame_rate.meters(tick / 100, cpu_s=tick**2, sent_bytes=tick) for tick in range(301)}
    assert len(shown) == 4
