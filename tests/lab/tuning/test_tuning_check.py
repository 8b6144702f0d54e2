"""The check measures every setting on unseen texts; the simpler setting wins unless another one is faster."""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import pytest

from decoder.analysis.interval import Interval
from decoder.analysis.metrics import Tally
from decoder.append_only import TokenLog
from decoder.forward.near_tie import Verdict
from dynatui.lab.bench.contenders import Contender, DecodedText
from dynatui.lab.bench.protocol import Sample
from dynatui.lab.tuning.job import FEWEST, MOST_REPEATS, checked, rounds
from dynatui.lab.tuning.outcome import AUTO, CHAIN, FOUND, PLAIN, SHIPPED, SHIPPED_CHAIN, Checked
from dynatui.lab.tuning.search import MethodSetting

SETTINGS = {FOUND: MethodSetting("dynatree"), SHIPPED: MethodSetting("dynatree")}
SPEEDS = {PLAIN: 100.0, FOUND: 240.0, SHIPPED: 200.0}


def sample(name: str, text: int, repeat: int, tokens: Sequence[int] = (1, 2, 3)) -> Sample:
    seconds = len(tokens) / (SPEEDS[name] * (1 + text + repeat))
    tally = Tally(rounds=1, timed_tokens=len(tokens), decode_s=seconds, log=TokenLog().plus(list(tokens)))
    return Sample(name, name, text, repeat, tally)


def take(settings: Mapping[str, MethodSetting], text: int, repeat: int) -> list[Sample]:
    return [sample(name, text, repeat) for name in (PLAIN, *settings)]


def taken(looks: int, texts: Sequence[int] = range(10, 18)) -> list[list[Sample]]:
    """Samples taken when the time is over after `looks` readings of the clock."""
    clock = count()
    return list(rounds(take, SETTINGS, texts, 0, lambda: next(clock) >= looks))


def told(samples: Sequence[Sample], *, near_tie: bool = False) -> Checked:
    contenders = [Contender(name, name, lambda *_: DecodedText(Tally()), {}) for name in SPEEDS]
    return checked(samples, contenders, 0, lambda *_: Verdict(near_tie, 0.0))


def test_every_text_comes_once_before_any_comes_again_and_a_few_though_time_is_over_before() -> None:
    blocks = taken(100)
    assert len(blocks) == 8 * MOST_REPEATS
    assert sorted(block[0].prompt for block in blocks[:8]) == list(range(10, 18))
    assert {sample.repeat for block in blocks[:8] for sample in block} == {0}
    assert [len(taken(looks)) for looks in (0, 3)] == [FEWEST, FEWEST + 3]


def test_ratios_are_those_of_the_same_text_side_by_side() -> None:
    found = told([each for block in taken(20) for each in block])
    gain: Any = found.ratios[FOUND, SHIPPED]
    assert abs(gain.value - 1.2) < 1e-9
    assert abs(gain.low - 1.2) < 1e-9
    assert found.texts == 8
    assert found.faster(FOUND, SHIPPED)
    assert not found.faster(SHIPPED, FOUND)
    assert not found.faster(SHIPPED, "nobody")


def test_a_text_that_is_another_one_is_named_unless_it_is_a_near_tie() -> None:
    samples = [each for block in taken(20) for each in block]
    samples[[each.contender for each in samples].index(FOUND)] = sample(FOUND, samples[0].prompt, 0, (1, 2, 4))
    assert told(samples).wrong == {FOUND}
    assert told(samples, near_tie=True).wrong == frozenset()


CLEAR = Interval(value=1.2, low=1.1, high=1.3)
NOISE = Interval(value=1.02, low=0.98, high=1.1)
SLOWER = Interval(value=0.8, low=0.7, high=0.9)
BEYOND_AUTO = {"auto_ar": CLEAR, "found_auto": CLEAR, "linear_auto": CLEAR}
MAYBE_SLOWER = (0.8, 0.7, 0.9), (0.98, 0.9, 1.1), (0.99, 0.98, 1.1), (1.02, 0.9, 1.1)


def told_of(*wrong: str, **over: Interval) -> Checked:
    """A check with these ratios, each given by a keyword ONE_OTHER; other ratios are unknown."""
    ratios = {tuple(pair.split("_")): interval for pair, interval in over.items()}
    return Checked(20, {}, {(one, other): found for (one, other), found in ratios.items()}, frozenset(wrong))


ALONE = Interval(value=1.5, low=None, high=None)
BETTER, KEPT, NOT_KEPT = (True, True), (False, True), (False, False)


def gain(value: float, low: float, high: float) -> Checked:
    return told_of(found_shipped=Interval(value=value, low=low, high=high), found_ar=CLEAR)


@pytest.mark.parametrize(
    ("told", "conclusion", "fastest"),
    [
        pytest.param(told_of(found_shipped=CLEAR), BETTER, PLAIN, id="a gain beyond noise"),
        pytest.param(told_of(found_shipped=NOISE), KEPT, PLAIN, id="a gain within noise"),
        pytest.param(told_of(shipped_ar=CLEAR), NOT_KEPT, SHIPPED, id="nothing found"),
        pytest.param(told_of(FOUND, found_shipped=CLEAR, found_ar=CLEAR), NOT_KEPT, PLAIN, id="another text"),
        *(pytest.param(gain(*row), NOT_KEPT, PLAIN, id=f"maybe slower, {row}") for row in MAYBE_SLOWER),
        pytest.param(told_of(found_shipped=ALONE, auto_ar=ALONE), NOT_KEPT, PLAIN, id="no interval"),
        pytest.param(told_of(AUTO, auto_ar=CLEAR, shipped_ar=CLEAR), NOT_KEPT, SHIPPED, id="auto writes another text"),
        (told_of(found_shipped=CLEAR, auto_ar=NOISE, found_ar=NOISE, linear_ar=SLOWER), BETTER, PLAIN),
        (told_of(found_shipped=CLEAR, auto_ar=CLEAR, found_auto=NOISE, linear_auto=SLOWER), BETTER, AUTO),
        (told_of(found_shipped=CLEAR, **BEYOND_AUTO, linear_found=NOISE), BETTER, FOUND),
        (told_of(found_shipped=CLEAR, **BEYOND_AUTO, linear_found=CLEAR), BETTER, CHAIN),
    ],
)
def test_what_is_found_is_kept_unless_it_may_be_slower_and_the_simplest_that_nothing_beats_is_advised(
    told: Checked, conclusion: tuple[bool, bool], fastest: str
) -> None:
    assert ((told.better, told.keeps()), told.fastest) == (conclusion, fastest)


@pytest.mark.parametrize(("gain", "keeps"), [(CLEAR, True), (NOISE, True), (SLOWER, False), (None, False)])
def test_a_chain_is_kept_unless_it_may_be_slower_than_the_shipped_one(gain: Interval | None, keeps: bool) -> None:  # noqa: FBT001 - a parameter of the test
    ratios = {(CHAIN, SHIPPED_CHAIN): gain}
    assert Checked(20, {}, ratios, frozenset()).keeps(CHAIN, SHIPPED_CHAIN) is keeps
    assert not Checked(20, {}, ratios, frozenset({CHAIN})).keeps(CHAIN, SHIPPED_CHAIN)
