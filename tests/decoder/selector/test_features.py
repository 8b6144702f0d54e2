"""Features of a selector come from the models' distributions at the root."""

import math

import pytest
import torch

from decoder.sampling.settings import Sampling
from decoder.selector.features import LEAST, SCALARS, TIMES, Root, scalars

P, Q, NOW = torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.25, 0.5, 0.25]), torch.tensor([1.0, 0.0, 0.0])
ROOT = Root(P, Q, NOW, (), 64, Sampling(0.7, top_p=0.9))


def test_scalars_are_those_of_the_paper() -> None:
    found = dict(zip(SCALARS, scalars(ROOT, 1e-3, 1e-2).tolist(), strict=True))
    backward = 0.25 * math.log(0.25 / 0.5) + 0.25 * math.log(0.25 / LEAST)
    assert list(found.values()) == pytest.approx(
        [
            math.log(2),
            1.5 * math.log(2),
            0.0,
            0.5 * math.log(2),
            backward,
            0.5,
            math.log(64),
            0.7,
            0.9,
            math.log(1e-3),
            math.log(1e-2),
        ],
        abs=1e-5,
    )


def test_only_the_last_scalars_depend_on_the_machine() -> None:
    slow, fast = scalars(ROOT, 1.0, 2.0), scalars(ROOT, 1e-4, 1e-3)
    assert [place for place in range(len(SCALARS)) if slow[place] != fast[place]] == list(range(len(SCALARS)))[TIMES]


def test_zeros_of_a_truncated_row_stay_finite() -> None:
    one = torch.tensor([0.0, 0.0, 1.0])
    assert scalars(Root(NOW, one, one, (), 1, Sampling(0.0)), 0.0, 0.0).isfinite().all()
