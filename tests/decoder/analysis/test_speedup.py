"""The speed-up of a race: the ratio over paired turns, its interval, and when there is none."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from decoder.analysis.metrics import fold
from decoder.analysis.speedup import ENOUGH, WIDE, Decoded, Segments, Speedup, change, speedup
from decoder.events import End, Event, Figures, Knob, Round, Summary
from tests.dynatui.scripted_runs import plain_round, raced, run, tree_round

TREE_S, PLAIN_S = 0.025, 0.02
"""Seconds of a round of three tokens with a draft tree, and of a token of plain decoding."""
RATIO = (3 / TREE_S) / (1 / PLAIN_S)
Seconds = Callable[[int], float]


def timed(rounds: Sequence[Round], seconds: Seconds, lost: Seconds = lambda _: 0.0) -> list[Round]:
    """Rounds with these durations, without the seconds that each has lost to a stall."""
    found, t = list[Round](), 0.0
    for number, event in enumerate(rounds):
        t += seconds(number) + lost(number)
        found.append(structs.replace(event, t=t, stalled_s=lost(number) or None))
    return found


def trees(seconds: Seconds = lambda _: TREE_S, lost: Seconds = lambda _: 0.0) -> list[Round]:
    return timed([tree_round(number) for number in range(40)], seconds, lost)


def plain(count: int = 50, seconds: Seconds = lambda _: PLAIN_S, lost: Seconds = lambda _: 0.0) -> list[Round]:
    return timed([plain_round("ar", number) for number in range(count)], seconds, lost)


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
        return speedup([self.turns.ended(self.plain).turns], whole=whole)


def test_it_is_the_ratio_of_the_speeds_with_an_interval_around_it() -> None:
    steady = figures(*raced(trees(), plain()))
    assert steady.speedup == pytest.approx(RATIO, rel=0.05)
    assert steady.speedup_reason is None
    found = figures(*raced(trees(lambda number: TREE_S * (1 + 0.2 * (number % 3))), plain()))
    assert found.speedup_low is not None
    assert found.speedup_high is not None
    assert found.speedup_low < (found.speedup or 0.0) < found.speedup_high < WIDE * found.speedup_low


def test_it_is_frozen_when_one_text_ends() -> None:
    both, end = raced(trees(), plain()), End(method="dynatree", reason="length")
    slow = plain(120, lambda number: PLAIN_S if number < 50 else 1.0)[50:]
    assert figures(*both, end, *slow).speedup == figures(*both, end).speedup


@settings(max_examples=30, deadline=None)
@given(load=st.lists(st.floats(1, 4), min_size=20, max_size=60))
def test_load_that_delays_both_methods_does_not_change_it(load: list[float]) -> None:
    """Nor does plain decoding before the first round of a method."""
    both = Raced(plain=Decoded(100, 100.0))
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


# A busy machine


@pytest.mark.parametrize("method", ["dynatree", "ar"])
def test_where_more_rounds_stall_than_are_left_out_the_machine_is_busy(method: str) -> None:
    """Stalls of one method make the machine busy for all."""

    def lost(number: int) -> float:
        return 0.05 * (number % 2)

    both = raced(trees(lost=lost), plain()) if method == "dynatree" else raced(trees(), plain(lost=lost))
    found = fold([run(), *both]).figures()
    assert {entry.speedup_reason for entry in found.values()} == {"machine busy"}
    own = found["dynatree"]
    assert (own.speedup, own.speedup_low, own.speedup_high) == (None, None, None)


@pytest.mark.parametrize(("share", "reason"), [(0.12, "machine busy"), (0.08, None)])
def test_where_threads_waited_for_a_good_part_of_the_time_the_machine_is_busy(share: float, reason: str | None) -> None:
    waited_s = share * (TREE_S + PLAIN_S * 50 / 40)
    waited = [structs.replace(event, waited_s=waited_s) for event in trees()]
    assert figures(*raced(waited, plain())).speedup_reason == reason


def test_a_wait_of_a_stalled_round_is_not_counted_twice() -> None:
    one = trees(lost=lambda number: 1.0 * (number == 20))
    stalled = [structs.replace(event, waited_s=event.stalled_s) for event in one]
    assert figures(*raced(stalled, plain())).speedup_reason is None


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


# Few rounds


def assert_wide(found: Speedup) -> None:
    assert found.low is not None
    assert found.high is not None
    assert found.high > WIDE * found.low


def test_where_tokens_differ_much_there_are_too_few_rounds_until_the_text_ends_or_many_are_there() -> None:
    few, many = Raced(), Raced()
    for number in range(8):
        few.add(TREE_S, PLAIN_S, tokens=1 if number % 4 else 16)
    assert few.found() == Speedup(reason="too few rounds")
    assert few.found(whole=True).value == pytest.approx(38 / 8 / TREE_S * PLAIN_S)
    assert_wide(few.found(whole=True))
    for number in range(ENOUGH):
        many.add(TREE_S, PLAIN_S, tokens=1 if number % 15 else 60)
    assert many.found().value is not None
    assert_wide(many.found())


def test_before_thirty_tokens_of_both_it_is_warming_up_and_without_plain_decoding_there_is_none() -> None:
    found = figures(*raced(trees(), plain(29)))
    assert (found.speedup, found.speedup_reason) == (None, "warming up")
    found = fold([run(("dynatree",)), *trees()]).figures()["dynatree"]
    assert (found.speedup, found.speedup_reason) == (None, None)


def test_a_summary_of_an_earlier_version_is_judged_by_its_rounds() -> None:
    race = fold([run(), *raced(trees(), plain())])
    old = Summary(methods={"dynatree": structs.replace(race.figures()["dynatree"], speedup=6.73, near_tie=True)})
    found = race.judged(old.methods)["dynatree"]
    assert found.speedup == race.figures()["dynatree"].speedup
    assert found.near_tie


# Several texts


def a_a(random: np.random.Generator, turns: int) -> Raced:
    """Twice the same method, whose rounds commit 1 to 4 tokens, under a load that changes slowly."""
    both, load = Raced(), 0.0
    for tokens, plain_tokens, own, plain_own, shock in random.normal(size=(turns, 5)).tolist():
        load = 0.9 * load + 0.1 * shock
        one, other = (1 + min(3, int(abs(each) * 1.5)) for each in (tokens, plain_tokens))
        both.turns = both.turns.with_round(Decoded(one, TREE_S * math.exp(load + 0.05 * own)), both.plain)
        both.plain = both.plain.plus(Decoded(other, TREE_S * math.exp(load + 0.05 * plain_own)))
    return both


@pytest.mark.parametrize(("texts", "turns"), [(1, 120), (4, 40)])
def test_of_a_method_against_itself_the_interval_holds_one_in_about_95_percent(texts: int, turns: int) -> None:
    random, trials, held = np.random.default_rng(texts), 200, 0
    for _ in range(trials):
        races = [a_a(random, turns) for _ in range(texts)]
        found = speedup([race.turns.ended(race.plain).turns for race in races], whole=True)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 1 <= found.high
    # 95 % of 200 trials are 190, with a standard deviation of 3.1.
    assert 179 <= held <= 199


@pytest.mark.parametrize("texts", [1, 5])
def test_two_measurements_of_one_method_show_no_change_in_about_95_percent(texts: int) -> None:
    random, trials, held = np.random.default_rng(texts), 100, 0
    for _ in range(trials):
        pairs = [(a_a(random, 60).found(whole=True), a_a(random, 60).found(whole=True)) for _ in range(texts)]
        found = change(pairs)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 1 <= found.high
    assert 88 <= held <= 100


def test_a_change_is_the_geometric_mean_over_texts_and_a_wider_coverage_widens_it() -> None:
    pairs = [(Speedup(1.0, 0.9, 1.1), Speedup(2.0, 1.8, 2.2)), (Speedup(2.0, 1.8, 2.2), Speedup(1.0, 0.9, 1.1))]
    found, wider = change(pairs), change(pairs, 0.99)
    assert found.value == wider.value == pytest.approx(1)
    assert (wider.low or 0) < (found.low or 0) < 1 < (found.high or 0) < (wider.high or 0)
    assert change([(Speedup(reason="machine busy"), Speedup(1.0))]) == Speedup(reason="machine busy")
    assert change([(Speedup(1.0), Speedup(2.0))]) == Speedup(2.0)


def a_text(at: str, tree_s: float = TREE_S, **settings: Any) -> list[Event]:
    trees_of_it = trees(lambda number: tree_s * (1 + 0.1 * (number % 3)))
    return [structs.replace(run(), started_at=at, **settings), *raced(trees_of_it, plain()), *ENDS]


ENDS = (End(method="dynatree", reason="length"), End(method="ar", reason="length"))


def pooled(*events: Event) -> Figures:
    return fold(events).pooled()["dynatree"]


def test_texts_are_pooled_by_their_sums() -> None:
    one, other = a_text("1"), a_text("2", 2 * TREE_S)
    alone, both = [pooled(*text) for text in (one, other)], pooled(*one, *other)
    assert (alone[1].speedup or 9) < (both.speedup or 9) < (alone[0].speedup or 0)
    assert both.committed == alone[0].committed + alone[1].committed
    assert both.tokens_per_round == alone[0].tokens_per_round
    assert both.identical_to_ar == alone[0].identical_to_ar
    assert fold([*one, *other]).figures()["dynatree"].speedup == alone[1].speedup


def test_before_the_next_text_is_warm_the_figure_is_that_of_the_texts_before() -> None:
    one = a_text("1")
    assert pooled(*one, *a_text("2", 9.0)[:4]).speedup == pytest.approx(pooled(*one).speedup)


def test_a_text_that_is_played_again_counts_once() -> None:
    one, other = a_text("1"), a_text("2", 2 * TREE_S)
    assert pooled(*one, *other, *one, *other).speedup == pytest.approx(pooled(*one, *other).speedup)


@pytest.mark.parametrize("settings", [{"temperature": 0.5}, {"methods": {"dynatree": {"d0": 2}, "ar": {}}}])
def test_texts_under_other_settings_are_not_pooled(settings: dict[str, Any]) -> None:
    other = a_text("2", 2 * TREE_S, **settings)
    assert pooled(*a_text("1"), *other) == pooled(*other)


def test_a_text_in_which_a_knob_was_turned_stays_alone() -> None:
    knob = Knob(method="dynatree", round=3, name="d0", old=4, new=6, source="user")
    first, *events = a_text("1")
    turned, other = [first, knob, *events], a_text("2", 2 * TREE_S)
    assert pooled(*turned, *other) == pooled(*other)
    assert pooled(*other, *turned).speedup == pooled(*turned).speedup


def test_a_text_on_a_busy_machine_is_left_out() -> None:
    one, busy = a_text("1"), a_text("2", 2 * TREE_S)
    waiting = [structs.replace(event, waited_s=1.0) if isinstance(event, Round) else event for event in busy]
    assert pooled(*waiting).speedup_reason == "machine busy"
    assert pooled(*one, *waiting).speedup == pytest.approx(pooled(*one).speedup)


def test_what_follows_the_end_of_one_text_changes_nothing() -> None:
    """Not even waits, stalls and slow passes of the methods that go on."""
    both, end = raced(trees(), plain()), ENDS[0]
    slow = plain(120, lambda number: PLAIN_S if number < 50 else 1.0)[50:]
    waits: list[Event] = [
        structs.replace(event, waited_s=5.0, stalled_s=0.9 * (event.round % 2) or None) for event in slow
    ]
    before, after = (fold([run(), *both, end, *later]) for later in ([], [*waits, ENDS[1]]))
    assert after.pooled()["dynatree"].speedup == before.pooled()["dynatree"].speedup
    assert after.figures()["dynatree"].speedup_reason is None
