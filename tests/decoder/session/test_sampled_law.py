"""Over seeds, the first three tokens under coupled sampling follow the target's distribution.

The test is sensitive enough to reject noise that repeats over positions or over seeds.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from decoder.sampling import noise
from decoder.sampling.settings import Sampling
from tests.decoder.laws.cases import deterministic
from tests.decoder.laws.joint_law import compare
from tests.decoder.laws.toy import Setting, sampled, texts

TEXTS = 400
SETTINGS = {
    "a chain, top-p": deterministic("linear", "coupled", Sampling(1.0, 0, 0.9), "llama"),
    "a chain, T 2": deterministic("linear", "coupled", Sampling(2.0), "neox"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_texts_are_distributed_as_the_target_s(name: str) -> None:
    setting = SETTINGS[name]
    assert compare(texts(setting, range(TEXTS)), setting.law).fits


def test_what_is_drafted_makes_no_difference_to_any_text() -> None:
    warm = Sampling(0.7)
    drafting = [deterministic(method, "coupled", warm, "neox") for method in ("linear", "dynatree")]
    plain, *drafted = [texts(each, range(100)) for each in (Setting("neox", sampled("ar", warm)), *drafting)]
    assert plain == drafted[0] == drafted[1]


def everywhere_alike(gumbel: Callable[..., Any], seed: int, positions: Any, vocabulary: int) -> Any:
    return gumbel(seed, [0] * len(positions), vocabulary)


def few_seeds(gumbel: Callable[..., Any], seed: int, positions: Any, vocabulary: int) -> Any:
    return gumbel(seed % 40, positions, vocabulary)


def every_other_position_alike(gumbel: Callable[..., Any], seed: int, positions: Any, vocabulary: int) -> Any:
    return gumbel(seed, [position // 2 for position in positions], vocabulary)


@pytest.mark.parametrize(
    ("wrong", "count"), [(everywhere_alike, 300), (few_seeds, 300), (every_other_position_alike, 600)]
)
def test_noise_that_repeats_is_found(wrong: Callable[..., Any], count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`count` texts are enough to reject this noise."""
    monkeypatch.setattr(noise, "gumbel", partial(wrong, noise.gumbel))
    setting = SETTINGS["a chain, T 2"]
    assert not compare(texts(setting, range(count)), setting.law).fits
