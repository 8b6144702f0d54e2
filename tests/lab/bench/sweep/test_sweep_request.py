"""Each request has one study."""

from typing import Any

import msgspec
import pytest

from decoder.errors import ConfigError
from dynatui.lab.bench.on_pair import differing
from dynatui.lab.bench.sweep.request import SweepRequest
from tests.lab.bench.sweep.sweeps import AXES, request


def test_the_same_question_has_the_same_study_in_every_process() -> None:
    question = request(reference={"branching": (1, 2, 3)})
    again = msgspec.json.decode(msgspec.json.encode(question), type=SweepRequest)
    assert again.study == question.study
    assert differing(again, question) == []
    assert again.study.startswith("fixed-")


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
def test_another_question_is_another_study(change: dict[str, Any]) -> None:
    other = request(**change)
    assert other.study != request().study
    assert differing(request(), other) == list(change)


def test_no_repeats_are_refused() -> None:
    with pytest.raises(ConfigError, match="--repeats is 0; give 1 or more"):
        request(repeats=0)
