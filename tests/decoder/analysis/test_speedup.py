"""The speed-up of a race: the ratio over paired turns, its interval, and when there is none."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from decoder.analysis.metrics import fold
from decoder.analysis.speedup import ENOUGH, WIDE, Decoded, Segments, Speedup, speedup
from decoder.events import End, Event, Figures, Round, Summary
from tests.dynatui.scripted_runs import plain_round, raced, run, tree_round

TREE_S, PLAIN_S = 0.025, 0.02
"""Seconds of a round of three tokens with a draft tree, and of a token of plain decoding."""
RATIO = (3 / TREE_S) / (1 / PLAIN_S)


def timed(rounds: Sequence[Round], seconds: Sequence[float], stalls: Sequence[float] = ()) -> list[Round]:
    """The rounds with these durations; `stalls` are the seconds that each has lost."""
    found, t = list[Round](), 0.0
    for place, (event, took_s) in enumerate(zip(rounds, seconds, strict=True)):
        lost_s = stalls[place] if stalls else 0.0
        t += took_s + lost_s
        found.append(structs.replace(event, t=t, stalled_s=lost_s or None))
    return found


def lanes(trees: int, plain: int) -> tuple[list[Round], list[Round]]:
    return [tree_round(number) for number in range(trees)], [plain_round("ar", number) for number in range(plain)]


def figures(*events: Event) -> Figures:
    return fold([run(), *events]).figures()["dynatree"]


@dataclass
class Raced:
    """Turns of a round and a pass of plain decoding each."""

    turns: Segments = field(default_factory=Segments)
    plain: Decoded = field(default_factory=Decoded)

    def add(self, seconds: float, plain_seconds: float, tokens: int = 3) -> None:
        self.turns = self.turns.with_round(Decoded(tokens, seconds), self.plain)
        self.plain = self.plain.plus(Decoded(1, plain_seconds))

    def found(self, *, whole: bool = False) -> Speedup:
        return speedup(self.turns.ended(self.plain), warm=True, busy=False, whole=whole)


def test_it_is_the_ratio_of_the_speeds() -> None:
    trees, plain = lanes(40, 50)
    found = figures(*raced(timed(trees, [TREE_S] * 40), timed(plain, [PLAIN_S] * 50)))
    assert found.speedup == pytest.approx(RATIO, rel=0.05)
    assert found.speedup_reason is None


def test_it_has_an_interval_around_it() -> None:
    trees, plain = lanes(40, 50)
    took = [TREE_S * (1 + 0.2 * (number % 3)) for number in range(40)]
    found = figures(*raced(timed(trees, took), timed(plain, [PLAIN_S] * 50)))
    assert found.speedup_low is not None
    assert found.speedup_high is not None
    assert found.speedup_low < (found.speedup or 0.0) < found.speedup_high < WIDE * found.speedup_low


def test_it_is_frozen_when_one_text_ends() -> None:
    trees, plain = lanes(40, 120)
    both = raced(timed(trees, [TREE_S] * 40), timed(plain[:50], [PLAIN_S] * 50))
    slow = timed(plain, [PLAIN_S] * 50 + [1.0] * 70)[50:]
    end = End(method="dynatree", reason="length")
    assert figures(*both, end, *slow).speedup == figures(*both, end).speedup


@settings(max_examples=30, deadline=None)
@given(load=st.lists(st.floats(1, 4), min_size=20, max_size=60))
def test_load_that_delays_both_methods_does_not_change_it(load: list[float]) -> None:
    both = Raced()
    for factor in load:
        both.add(TREE_S * factor, PLAIN_S * factor)
    assert both.found().value == pytest.approx(RATIO)


@settings(max_examples=20, deadline=None)
@given(count=st.integers(10, 1500), seed=st.integers(0, 9))
def test_a_bounded_number_of_turns_keeps_the_ratio_of_all(count: int, seed: int) -> None:
    took = [TREE_S * (1 + 0.1 * ((number * 7 + seed) % 5)) for number in range(count)]
    both = Raced()
    for seconds in took:
        both.add(seconds, PLAIN_S)
    assert len(both.turns.closed) < 64
    assert both.found().value == pytest.approx(3 * count / sum(took) * PLAIN_S)


def test_where_more_rounds_stall_than_are_left_out_the_machine_is_busy() -> None:
    trees, plain = lanes(40, 50)
    lost = [0.05 * (number % 2) for number in range(40)]
    found = figures(*raced(timed(trees, [TREE_S] * 40, lost), timed(plain, [PLAIN_S] * 50)))
    assert (found.speedup, found.speedup_low, found.speedup_high) == (None, None, None)
    assert found.speedup_reason == "machine busy"


def test_stalls_of_another_method_make_the_machine_busy_for_all() -> None:
    trees, plain = lanes(40, 50)
    lost = [0.05 * (number % 2) for number in range(50)]
    race = fold([run(), *raced(timed(trees, [TREE_S] * 40), timed(plain, [PLAIN_S] * 50, lost))])
    assert {entry.speedup_reason for entry in race.figures().values()} == {"machine busy"}


@pytest.mark.parametrize(("share", "reason"), [(0.12, "machine busy"), (0.08, None)])
def test_where_threads_waited_for_a_good_part_of_the_time_the_machine_is_busy(share: float, reason: str | None) -> None:
    trees, plain = lanes(40, 50)
    waited_s = share * (TREE_S + PLAIN_S * 50 / 40)
    waited = [structs.replace(event, waited_s=waited_s) for event in timed(trees, [TREE_S] * 40)]
    assert figures(*raced(waited, timed(plain, [PLAIN_S] * 50))).speedup_reason == reason


def test_a_wait_of_a_stalled_round_is_not_counted_twice() -> None:
    trees, plain = lanes(40, 50)
    lost = [1.0 * (number == 20) for number in range(40)]
    stalled = [structs.replace(event, waited_s=event.stalled_s) for event in timed(trees, [TREE_S] * 40, lost)]
    assert figures(*raced(stalled, timed(plain, [PLAIN_S] * 50))).speedup_reason is None


def test_where_equal_passes_take_too_different_times_the_machine_is_busy() -> None:
    both = Raced()
    for number in range(2 * ENOUGH):
        both.add(TREE_S, PLAIN_S if number % 20 else 60 * PLAIN_S)
    assert both.found(whole=True) == both.found() == Speedup(reason="machine busy")


def test_one_slow_pass_among_few_is_not_called_a_busy_machine() -> None:
    both = Raced()
    for number in range(12):
        both.add(TREE_S, PLAIN_S * (20 if number == 5 else 1))
    assert both.found() == both.found(whole=True) == Speedup(reason="too few rounds")


def test_plain_decoding_before_the_first_round_of_a_method_does_not_count() -> None:
    both = Raced(plain=Decoded(100, 100.0))
    for _ in range(20):
        both.add(TREE_S, PLAIN_S)
    assert both.found().value == pytest.approx(RATIO)


def test_where_tokens_differ_much_there_are_too_few_rounds_until_the_text_ends() -> None:
    both = Raced()
    for number in range(8):
        both.add(TREE_S, PLAIN_S, tokens=1 if number % 4 else 16)
    assert both.found() == Speedup(reason="too few rounds")
    at_the_end = both.found(whole=True)
    assert at_the_end.value == pytest.approx(38 / 8 / TREE_S * PLAIN_S)
    assert at_the_end.low is not None
    assert at_the_end.high is not None
    assert at_the_end.high > WIDE * at_the_end.low


def test_after_many_rounds_whose_tokens_differ_much_it_is_known() -> None:
    both = Raced()
    for number in range(ENOUGH):
        both.add(TREE_S, PLAIN_S, tokens=1 if number % 15 else 60)
    found = both.found()
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    assert found.high > WIDE * found.low


def test_before_thirty_tokens_of_both_it_is_warming_up() -> None:
    trees, plain = lanes(40, 29)
    found = figures(*raced(timed(trees, [TREE_S] * 40), timed(plain, [PLAIN_S] * 29)))
    assert (found.speedup, found.speedup_reason) == (None, "warming up")


def test_without_plain_decoding_there_is_neither_figure_nor_reason() -> None:
    found = fold([run(("dynatree",)), *lanes(40, 0)[0]]).figures()["dynatree"]
    assert (found.speedup, found.speedup_reason) == (None, None)


def test_a_summary_of_an_earlier_version_is_judged_by_its_rounds() -> None:
    trees, plain = lanes(40, 50)
    race = fold([run(), *raced(timed(trees, [TREE_S] * 40), timed(plain, [PLAIN_S] * 50))])
    old = Summary(methods={"dynatree": structs.replace(race.figures()["dynatree"], speedup=6.73, near_tie=True)})
    found = race.judged(old.methods)["dynatree"]
    assert found.speedup == race.figures()["dynatree"].speedup
    assert found.near_tie
