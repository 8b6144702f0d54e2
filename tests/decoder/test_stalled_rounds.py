"""A stalled round in a race is marked, and changes neither rates nor the order of methods.

The clock advances only when it is read, so two runs are identical except for the stall that a test adds.
"""

import time
from typing import Any

import pytest
from msgspec import structs

from decoder import RunConfig, Steering, decode
from decoder.analysis.metrics import fold
from decoder.events import Round, decode_line, encode
from decoder.session.host import HostSession
from decoder.system.waiting import Waited
from tests.decoder.makers import Played, TinyModels, play

METHODS = ("dynatree", "ar", "linear")
STALLED, STALL_S = 25, 1.06
"""Number of the stalled round, counted over all methods, and its delay in seconds."""
RATES = ("tokens_per_second", "speedup", "tpot_s")


class Clock:
    """Fake clock and processor waits for sessions and the race."""

    def __init__(self, stalled: int | None) -> None:
        self.now = 0.0
        self.rounds = self.looks = 0
        self.slept: list[float] = []
        self._stalled = stalled

    def perf_counter(self) -> float:
        self.looks += 1
        if self.rounds == self._stalled and self.looks == 3:
            self.now += STALL_S
        self.now += 0.001 + 1e-6 * (self.rounds % 7)  # no two methods are ever equally far by rounding alone
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def begin(self) -> None:
        self.rounds += 1
        self.looks = 0

    def end(self, took_s: float) -> Waited:
        return Waited(0.0, min(took_s, STALL_S) if self.rounds == self._stalled else 0.0)

    def close(self) -> None:
        pass


@pytest.fixture
def run(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> Any:
    def decoding(stalled: int | None, speed: float = 1.0, tokens: int = 40) -> tuple[Played, Clock]:
        clock = Clock(stalled)
        for module in ("system.device", "run.race", "run.lane", "session.steering"):
            monkeypatch.setattr(f"decoder.{module}.time", clock)
        monkeypatch.setattr("decoder.run.lane.ProcessorWaits", lambda: clock)
        config, steering = RunConfig(METHODS, tokens), Steering(speed=speed)
        return Played(list(decode(tiny_models.engine("neox"), "The tree grows", config, steering))), clock

    return decoding


def rounds(played: Played) -> list[Round]:
    return [event for event in played.events if isinstance(event, Round)]


def test_a_round_that_stands_still_is_marked_and_rates_stay_as_they_were(run: Any) -> None:
    (usual, _), (stalled, _) = run(None, tokens=120), run(STALLED, tokens=120)
    assert [event.stalled_s for event in rounds(usual)] == [None] * len(rounds(usual))
    assert [number for number, event in enumerate(rounds(stalled), 1) if event.stalled_s] == [STALLED]
    event = rounds(stalled)[STALLED - 1]
    assert event.stalled_s == pytest.approx(STALL_S, abs=0.01)
    for method in METHODS:
        before, found = usual.figures(method), stalled.figures(method)
        assert [getattr(found, key) for key in RATES] == pytest.approx([getattr(before, key) for key in RATES], rel=0.1)
        lost = method == event.method
        assert (found.stalled_rounds, found.left_out_rounds) == (lost, lost)
    assert stalled.figures(event.method).decode_s > usual.figures(event.method).decode_s + STALL_S - 0.01


def test_a_round_that_stands_still_changes_nothing_of_who_goes_next(run: Any) -> None:
    (usual, _), (stalled, _) = run(None), run(STALLED)
    assert [event.method for event in rounds(usual)] == [event.method for event in rounds(stalled)]


def test_a_first_round_that_was_nothing_but_a_stall_is_followed_by_the_first_round_of_the_next_method(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Clock, "end", lambda clock, took_s: Waited(0.0, took_s if clock.rounds == 1 else 0.0))
    stalled, _ = run(1)
    first = rounds(stalled)[0]
    assert first.stalled_s == first.t, "without stalls, this method's clock is still 0"
    assert tuple(event.method for event in rounds(stalled)[: len(METHODS)]) == METHODS


def test_waits_of_every_round_are_written_and_withhold_the_speedup(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Clock, "end", lambda _, took_s: Waited(0.2 * took_s, 0.0))
    played, _ = run(None, tokens=120)
    assert all(event.waited_s for event in rounds(played))
    assert {played.figures(method).speedup_reason for method in METHODS} == {"machine busy"}


def test_slow_motion_does_not_stretch_what_a_round_has_lost(run: Any) -> None:
    (_, usual), (_, stalled) = run(None, 1 / 8), run(STALLED, 1 / 8)
    assert sum(stalled.slept) == pytest.approx(sum(usual.slept), rel=0.1)


def test_a_recording_names_the_stalled_round_alone_and_has_the_figures_of_the_run(run: Any) -> None:
    played, _ = run(STALLED)
    told = [b"stalled_s" in encode(event) for event in rounds(played)]
    assert told == [number == STALLED for number in range(1, len(told) + 1)]
    found = fold([decode_line(encode(event), number) for number, event in enumerate(played.events, 1)]).figures()
    for method in METHODS:
        assert found[method] == structs.replace(played.figures(method), near_tie=None, first_difference_gap=None)


def test_a_process_that_stands_still_is_noticed(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only clocks show the stall, as on a system without wait counts; to them, a sleep looks like a stopped process."""
    commit, count = HostSession._commit, iter(range(99))

    def once(session: HostSession, outcome: Any) -> None:
        if next(count) == 5:
            time.sleep(0.5)
        commit(session, outcome)

    monkeypatch.setattr(HostSession, "_commit", once)
    monkeypatch.setattr("decoder.system.waiting.ThreadWaits.look", lambda _: 0.0)
    played = play(tiny_models.engine("neox"), RunConfig(("ar",), 20))
    assert (played.rounds("ar")[5].stalled_s or 0.0) > 0.4
    assert played.figures("ar").left_out_s >= 0.5
