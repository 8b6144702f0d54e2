"""Sampled texts follow the target's distribution, and engines with a mistake are rejected.

Short tests run by default; the full runs of all cases are marked `statistical`.
"""

import os
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from decoder.forward.compiled.library import gumbel_on_host
from decoder.sampling.settings import Sampling
from tests.decoder.laws.block_efficiency import efficiency
from tests.decoder.laws.case import Case
from tests.decoder.laws.cases import GROUPS, SETTINGS, deterministic
from tests.decoder.laws.joint_law import ALPHA, compare
from tests.decoder.laws.mistakes import MISTAKES
from tests.decoder.laws.toy import Setting, sampled, texts

HOT = deterministic("linear", "coupled", Sampling(2.0), "neox")
SHORT = {
    "block, iid (1, 0, 3), T 1, top-p 1, neox": 250,
    "traversal, delayed (2, 1, 1), T 1, top-p 0.9, neox": 250,
    "nss, dynatree, T 1, top-p 1, neox": 250,
    "a coupled chain, top-p": 400,
    "a coupled chain, T 2": 400,
}
"""Numbers of texts, enough to reveal every mistake of `SEEN_SOON` and noise that repeats."""
COUPLED = {
    "a coupled chain, top-p": deterministic("linear", "coupled", Sampling(1.0, 0, 0.9), "llama"),
    "a coupled chain, T 2": HOT,
}
SEEN_SOON = {
    "coins: the draft's": 200,
    "target rows: those of the parents": 200,
    "target rows: no top-p": 60,
    "mask: siblings see each other": 100,
    "cache: refused rows kept": 80,
}
"""Number of texts for mistakes that few texts reveal."""
ALL = [pytest.param(case, id=f"{group.title}: {case.name}") for group in GROUPS for case in group.cases]


@pytest.mark.parametrize("name", SHORT)
def test_first_tokens_are_distributed_as_the_target_s(name: str) -> None:
    setting = (SETTINGS | COUPLED)[name]
    assert compare(texts(setting, range(SHORT[name])), setting.law).fits


def test_what_is_drafted_makes_no_difference_to_any_text_under_coupled_noise() -> None:
    warm = Sampling(0.7)
    drafting = [deterministic(method, "coupled", warm, "neox") for method in ("linear", "dynatree", "eagle2")]
    plain, *drafted = [texts(each, range(100)) for each in (Setting("neox", sampled("ar", warm)), *drafting)]
    assert drafted == [plain] * 3


@pytest.mark.parametrize("name", SEEN_SOON)
def test_a_mistake_is_found_out(name: str) -> None:
    (mistake,) = (each for each in MISTAKES if each.name == name)
    with mistake.change():
        counts = texts(mistake.setting, range(SEEN_SOON[name]))
    assert not compare(counts, mistake.setting.law).fits


REPEATED: dict[str, tuple[int, Callable[..., Any]]] = {
    "over positions": (300, lambda right, seed, places, width: right(seed, [0] * len(places), width)),
    "over seeds": (300, lambda right, seed, places, width: right(seed % 40, places, width)),
    "every other position": (600, lambda right, seed, places, width: right(seed, [at // 2 for at in places], width)),
}
"""Numbers of texts that are enough to reject noise that repeats."""


@pytest.mark.parametrize(("count", "wrong"), REPEATED.values(), ids=REPEATED)
def test_noise_that_repeats_is_found(count: int, wrong: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decoder.engine.gumbel_on_host", partial(wrong, gumbel_on_host))
    assert not compare(texts(HOT, range(count)), HOT.law).fits


@pytest.mark.statistical
@pytest.mark.parametrize("case", ALL)
def test_at_length(case: Case) -> None:
    if "embedded" in case.name and not os.environ.get("DYNATUI_DATA"):
        pytest.skip("DYNATUI_DATA names no folder with books_test/")
    counts: Counter[str] = Counter()
    for begin in range(0, case.units, case.block):
        counts.update(case.count(range(begin, min(begin + case.block, case.units))))
    verdict = case.judge(counts)
    assert verdict.right, verdict.figures


# The statistical test of laws


LAW = {"0": 0.5, "1": 0.3, "2": 0.2, "3": 0.0}


def sample(law: dict[str, float], texts: int, seed: int = 0) -> Counter[str]:
    found = np.random.default_rng(seed).multinomial(texts, list(law.values()))
    return Counter(dict(zip(law, found.tolist(), strict=True)))


def test_what_follows_the_law_passes_and_false_alarms_are_as_rare_as_pearson_s_distance_says() -> None:
    found = [compare(sample(LAW, 500, seed), LAW) for seed in range(2000)]
    assert all(each.fits for each in found[:200])
    assert np.mean([each.chance < 0.1 for each in found]) == pytest.approx(0.1, abs=0.025)


@pytest.mark.parametrize("text", ["3", "unheard"])
def test_one_impossible_text_fails(text: str) -> None:
    found = compare({"0": 500, "1": 300, "2": 200, text: 1}, LAW)
    assert (found.impossible, found.fits) == (1, False)


def test_another_law_fails_by_both_distances() -> None:
    found = compare(sample({"0": 0.4, "1": 0.4, "2": 0.2}, 20_000), LAW)
    assert found.chance < ALPHA / 2
    assert found.distance > found.bound
    assert not found.fits


def test_total_variation_is_that_of_the_shares_and_few_texts_tell_nothing() -> None:
    found = compare({"0": 60, "1": 20, "2": 20}, LAW)
    assert found.texts == 100
    assert found.distance == pytest.approx(0.1)
    assert compare({"0": 2, "1": 1}, LAW).chance == 1.0


def test_rare_texts_are_taken_together() -> None:
    law = {str(number): 0.001 for number in range(100)} | {"often": 0.9}
    assert compare({"7": 10, "often": 90}, law).chance == pytest.approx(1.0)
    assert compare({"7": 100}, law).chance < ALPHA


def test_z_of_tokens_a_round_is_their_difference_over_its_spread() -> None:
    found = efficiency({"rounds": 4, "expected": 8.0, "realised": 12.0, "squares": 4.0})
    assert (found.rounds, found.expected, found.realised, found.z) == (4, 2.0, 3.0, 2.0)
    assert found.chance == pytest.approx(0.0455, abs=1e-4)
