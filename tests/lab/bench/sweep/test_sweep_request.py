"""Requests of sweeps."""

from typing import Any

import pytest

from decoder.errors import ConfigError
from dynatui.lab.bench.on_pair import differing
from tests.lab.bench.sweep.sweeps import AXES, request


@pytest.mark.parametrize(
    "change",
    [
        {"target": "other"},
        {"device": "cuda"},
        {"dtype": "bfloat16"},
        {"prompts": ("The tree", "grows")},
        {"axes": AXES | {"T": (100,)}},
        {"reference": {"depth": 6}},
        {"repeats": 2},
        {"seed": 1},
    ],
)
def test_another_question_is_another_sweep(change: dict[str, Any]) -> None:
    other = request(**change)
    assert differing(request(), other) == list(change)


def test_no_repeats_are_refused() -> None:
    with pytest.raises(ConfigError, match="--repeats is 0; give 1 or more"):
        request(repeats=0)
