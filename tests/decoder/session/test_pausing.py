"""Slow motion sleeps as long as the speed requires, in few long sleeps so that rounds between them run warm."""

from collections.abc import Callable

import pytest

from decoder.session.steering import NAP_S, SLEEP_S, SlowMotion, Steering, hold


class Clock:
    """A fake clock: `sleep` advances it by the time slept, and each reading by a nanosecond."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.wakes: Callable[[], None] = lambda: None
        """Called during each sleep."""

    def perf_counter(self) -> float:
        self.now_s += 1e-9
        return self.now_s

    def sleep(self, seconds: float) -> None:
        assert 0 < seconds <= NAP_S
        self.now_s += seconds
        self.wakes()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("decoder.session.steering.time", clock)
    return clock


def slept(clock: Clock, motion: SlowMotion, decoded_s: float) -> float:
    before_s = clock.now_s
    motion.after(decoded_s)
    return clock.now_s - before_s


@pytest.mark.parametrize("speed", [1 / 2, 1 / 8, 1 / 64])
def test_a_show_takes_as_long_as_its_speed_says(clock: Clock, speed: float) -> None:
    motion = SlowMotion(Steering(speed=speed))
    rounds, round_s = 400, 0.003
    for _ in range(rounds):
        motion.after(round_s)
    assert rounds * round_s + clock.now_s == pytest.approx(rounds * round_s / speed, abs=SLEEP_S / speed)


def test_short_sleeps_are_saved_up(clock: Clock) -> None:
    motion = SlowMotion(Steering(speed=1 / 2))
    assert [round(slept(clock, motion, SLEEP_S / 2), 6) for _ in range(4)] == [0, SLEEP_S, 0, SLEEP_S]


def test_a_long_round_is_shown_by_itself(clock: Clock) -> None:
    motion = SlowMotion(Steering(speed=1 / 64))
    assert slept(clock, motion, 0.003) == pytest.approx(0.003 * 63)


@pytest.mark.parametrize("speed", [1.0, 4.0])
def test_at_full_speed_nobody_sleeps(clock: Clock, speed: float) -> None:
    motion = SlowMotion(Steering(speed=speed))
    assert sum(slept(clock, motion, 1.0) for _ in range(100)) == 0


@pytest.mark.parametrize("name", ["paused", "stopped"])
def test_a_pause_or_a_stop_ends_the_sleep_and_what_is_left_of_it(clock: Clock, name: str) -> None:
    steering = Steering(speed=1 / 64)
    motion = SlowMotion(steering)
    clock.wakes = lambda: setattr(steering, name, True)
    assert slept(clock, motion, 10.0) == pytest.approx(NAP_S)
    setattr(steering, name, False)
    assert slept(clock, motion, 0.001) == 0


def test_a_new_speed_holds_at_once(clock: Clock) -> None:
    steering = Steering(speed=1 / 64)
    motion = SlowMotion(steering)
    clock.wakes = lambda: setattr(steering, "speed", 1.0)
    assert slept(clock, motion, 10.0) == pytest.approx(NAP_S)


class Errands:
    """Idle work: `count` tasks, each of which takes `seconds`."""

    def __init__(self, clock: Clock, count: int, seconds: float) -> None:
        self._clock, self.left, self._seconds = clock, count, seconds

    def __call__(self) -> bool:
        if not self.left:
            return False
        self.left -= 1
        self._clock.now_s += self._seconds
        return True


def test_a_sleep_is_used_for_what_is_to_be_done_and_is_no_longer_for_that(clock: Clock) -> None:
    motion, errands = SlowMotion(Steering(speed=1 / 2)), Errands(clock, 3, SLEEP_S / 4)
    motion.after(2 * SLEEP_S, errands)
    assert errands.left == 0
    assert clock.now_s == pytest.approx(2 * SLEEP_S)


def test_at_full_speed_nothing_is_done_between_rounds(clock: Clock) -> None:
    errands = Errands(clock, 3, 1.0)
    SlowMotion(Steering(speed=1.0)).after(10.0, errands)
    assert errands.left == 3


def test_a_pause_is_used_for_what_is_to_be_done(clock: Clock) -> None:
    steering, errands = Steering(), Errands(clock, 3, 1.0)
    steering.paused = True

    def wake() -> None:
        steering.paused = False

    clock.wakes = wake
    hold(steering, idle=errands)
    assert errands.left == 0
    assert clock.now_s == pytest.approx(3 + NAP_S)
