"""The verdict of a check: the gain is that of unseen texts, and the simpler setting wins unless another is faster."""

import pytest

from decoder.analysis.interval import Interval
from dynatui.lab.tuning.outcome import AUTO, CHAIN, FOUND, PLAIN, SHIPPED, SHIPPED_CHAIN, Checked, verdict

CLEAR = Interval(value=1.2, low=1.1, high=1.3)
NOISE = Interval(value=1.02, low=0.98, high=1.1)
SLOWER = Interval(value=0.8, low=0.7, high=0.9)


def checked(*wrong: str, **over: Interval) -> Checked:
    """A check with these ratios, each given by a keyword ONE_OTHER; other ratios are unknown."""
    ratios = {tuple(pair.split("_")): interval for pair, interval in over.items()}
    return Checked(20, {}, {(one, other): found for (one, other), found in ratios.items()}, frozenset(wrong))


@pytest.mark.parametrize(
    ("told", "better", "keeps", "fastest"),
    [
        pytest.param(checked(found_shipped=CLEAR), True, True, PLAIN, id="a gain beyond noise"),
        pytest.param(checked(found_shipped=NOISE), False, True, PLAIN, id="a gain within noise"),
        pytest.param(checked(shipped_ar=CLEAR), False, False, SHIPPED, id="nothing found"),
        pytest.param(checked(FOUND, found_shipped=CLEAR, found_ar=CLEAR), False, False, PLAIN, id="another text"),
    ],
)
def test_what_is_found_is_kept_unless_it_may_be_slower(
    told: Checked,
    better: bool,  # noqa: FBT001 - a parameter of the test
    keeps: bool,  # noqa: FBT001
    fastest: str,
) -> None:
    found = verdict(told)
    assert (found.better, found.keeps, found.fastest) == (better, keeps, fastest)
    assert found.gain == told.ratios.get((FOUND, SHIPPED))


@pytest.mark.parametrize("gain", [(0.8, 0.7, 0.9), (0.98, 0.9, 1.1), (0.99, 0.98, 1.1), (1.02, 0.9, 1.1)])
def test_what_may_be_slower_is_not_kept(gain: tuple[float, float, float]) -> None:
    value, low, high = gain
    found = verdict(checked(found_shipped=Interval(value=value, low=low, high=high), found_ar=CLEAR))
    assert (found.better, found.keeps, found.fastest) == (False, False, PLAIN)


@pytest.mark.parametrize(
    ("over", "fastest"),
    [
        ({"auto_ar": NOISE, "found_ar": NOISE, "linear_ar": SLOWER}, PLAIN),
        ({"auto_ar": CLEAR, "found_ar": CLEAR, "found_auto": NOISE, "linear_auto": SLOWER}, AUTO),
        ({"auto_ar": CLEAR, "found_auto": CLEAR, "linear_auto": CLEAR, "linear_found": NOISE}, FOUND),
        ({"auto_ar": CLEAR, "found_auto": CLEAR, "linear_auto": CLEAR, "linear_found": CLEAR}, CHAIN),
    ],
)
def test_the_simplest_of_those_that_nothing_beats_beyond_noise_is_advised(
    over: dict[str, Interval], fastest: str
) -> None:
    assert verdict(checked(found_shipped=CLEAR, **over)).fastest == fastest


@pytest.mark.parametrize(("gain", "keeps"), [(CLEAR, True), (NOISE, True), (SLOWER, False)])
def test_a_chain_is_kept_unless_it_may_be_slower_than_the_shipped_one(gain: Interval, keeps: bool) -> None:  # noqa: FBT001 - a parameter of the test
    ratios = {(CHAIN, SHIPPED_CHAIN): gain}
    assert verdict(Checked(20, {}, ratios, frozenset())).keeps_chain is keeps
    assert not verdict(Checked(20, {}, ratios, frozenset({CHAIN}))).keeps_chain
    assert not verdict(checked(found_shipped=CLEAR, linear_ar=CLEAR)).keeps_chain


def test_one_value_without_an_interval_proves_nothing() -> None:
    alone = Interval(value=1.5, low=None, high=None)
    found = verdict(checked(found_shipped=alone, auto_ar=alone))
    assert (found.better, found.fastest) == (False, PLAIN)


def test_whoever_writes_another_text_is_not_advised() -> None:
    assert verdict(checked(AUTO, auto_ar=CLEAR, shipped_ar=CLEAR)).fastest == SHIPPED
