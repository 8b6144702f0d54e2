"""Time that a line must keep up before it gets more frames: it grows with each failure, and is later reset."""

from dynatui.screen.panel_app import _RECOVERY_S
from tests.dynatui.screen.slow_line import FPS, SlowLine

FAST, SLOW = 1000.0, 1.0


def slowed(line: SlowLine, seconds: float) -> SlowLine:
    line.frames_per_second = SLOW
    line.run(seconds)
    line.frames_per_second, line.free_at = FAST, line.now
    return line


def recovery_s(line: SlowLine) -> float:
    start = line.now
    while line.run(0.5) < 0.5 * FPS:
        assert line.now < start + 500
    return line.now - start


def test_after_one_bad_moment_a_line_soon_gets_every_frame_again() -> None:
    assert recovery_s(slowed(SlowLine(FAST), 2.0)) <= 2 * _RECOVERY_S + 2


def test_a_line_that_was_slow_for_long_waits_longer() -> None:
    assert recovery_s(slowed(SlowLine(FAST), 30.0)) > 10 * _RECOVERY_S


def test_a_line_that_has_kept_up_for_long_is_trusted_as_at_first() -> None:
    line = slowed(SlowLine(FAST), 30.0)
    recovery_s(line)
    line.run(60.0)
    assert recovery_s(slowed(line, 2.0)) <= 2 * _RECOVERY_S + 2


def test_a_line_is_not_trusted_before_it_has_kept_up_at_every_frame_for_as_long() -> None:
    line = slowed(SlowLine(FAST), 30.0)
    recovery_s(line)
    line.run(5.0)
    assert recovery_s(slowed(line, 2.0)) > 5 * _RECOVERY_S
