"""The verdict of a check: the gain is that of unseen texts, and the simpler setting wins unless another is faster."""

import pytest

from decoder.analysis.interval import Interval
from dynatui.lab.tuning.verdict import AUTO, CHAIN, FOUND, PLAIN, SHIPPED, SHIPPED_CHAIN, Checked, verdict

CLEAR = Interval(value=1.2, low=1.1, high=1.3)
NOISE = Interval(value=1.02, low=0.98, high=1.1)
SLOWER = Interval(value=0.8, low=0.7, high=0.9)


def checked(wrong: frozenset[str] = frozenset(), /, **over: Interval) -> Checked:
    """A check with these ratios, each given by a keyword ONE_OTHER; other ratios are unknown."""
    ratios = {tuple(pair.split("_")): interval for pair, interval in over.items()}
    return Checked(20, {}, {(one, other): found for (one, other), found in ratios.items()}, wrong)


def test_a_gain_beyond_noise_is_better_and_kept() -> None:
    found = verdict(checked(found_shipped=CLEAR))
    assert (found.better, found.keeps) == (True, True)
    assert found.gain == CLEAR


def test_a_gain_within_noise_is_kept_but_not_called_better() -> None:
    found = verdict(checked(found_shipped=NOISE))
    assert (found.better, found.keeps) == (False, True)


@pytest.mark.parametrize("gain", [(0.8, 0.7, 0.9), (0.98, 0.9, 1.1), (0.99, 0.98, 1.1), (1.02, 0.9, 1.1)])
def test_what_may_be_slower_is_not_kept(gain: tuple[float, float, float]) -> None:
    value, low, high = gain
    found = verdict(checked(found_shipped=Interval(value=value, low=low, high=high), found_ar=CLEAR))
    assert (found.better, found.keeps, found.fastest) == (False, False, PLAIN)


def test_nothing_found_is_nothing_to_keep() -> None:
    found = verdict(checked(shipped_ar=CLEAR))
    assert (found.gain, found.better, found.keeps, found.fastest) == (None, False, False, SHIPPED)


def test_a_text_that_is_another_one_is_not_kept_however_fast() -> None:
    found = verdict(checked(frozenset({FOUND}), found_shipped=CLEAR, found_ar=CLEAR))
    assert (found.better, found.keeps, found.fastest) == (False, False, PLAIN)


def test_where_nothing_is_faster_beyond_noise_plain_decoding_is_advised() -> None:
    found = verdict(checked(found_shipped=CLEAR, auto_ar=NOISE, found_ar=NOISE, linear_ar=SLOWER))
    assert found.fastest == PLAIN


def test_where_nothing_beats_auto_beyond_noise_auto_is_advised() -> None:
    found = verdict(checked(found_shipped=CLEAR, auto_ar=CLEAR, found_ar=CLEAR, found_auto=NOISE, linear_auto=SLOWER))
    assert found.fastest == AUTO


def test_whoever_beats_auto_is_advised() -> None:
    def fastest(linear_found: Interval) -> str:
        over = {"auto_ar": CLEAR, "found_auto": CLEAR, "linear_auto": CLEAR, "linear_found": linear_found}
        return verdict(checked(frozenset(), found_shipped=CLEAR, **over)).fastest

    assert fastest(NOISE) == FOUND
    assert fastest(CLEAR) == CHAIN


@pytest.mark.parametrize(("gain", "keeps"), [(CLEAR, True), (NOISE, True), (SLOWER, False)])
def test_a_chain_is_kept_unless_it_may_be_slower_than_the_shipped_one(gain: Interval, keeps: bool) -> None:  # noqa: FBT001 - a parameter of the test
    ratios = {(CHAIN, SHIPPED_CHAIN): gain}
    assert verdict(Checked(20, {}, ratios, frozenset())).keeps_chain is keeps
    assert not verdict(Checked(20, {}, ratios, frozenset({CHAIN}))).keeps_chain


def test_a_chain_that_nothing_was_found_for_is_nothing_to_keep() -> None:
    assert not verdict(checked(found_shipped=CLEAR, linear_ar=CLEAR)).keeps_chain


def test_one_value_without_an_interval_proves_nothing() -> None:
    ratios = {
        (FOUND, SHIPPED): Interval(value=1.5, low=None, high=None),
        (AUTO, PLAIN): Interval(value=1.5, low=None, high=None),
    }
    found = verdict(Checked(1, {}, ratios, frozenset()))
    assert (found.better, found.fastest) == (False, PLAIN)


def test_whoever_writes_another_text_is_not_advised() -> None:
    found = verdict(checked(frozenset({AUTO}), auto_ar=CLEAR, shipped_ar=CLEAR))
    assert found.fastest == SHIPPED
