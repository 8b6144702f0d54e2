"""Truncation in the compiled library excludes the tokens that the reference excludes."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decoder.forward.compiled.library import PassLibrary, library, truncated_offsets
from decoder.forward.token_choice import kept_choice
from decoder.sampling.settings import Sampling
from decoder.sampling.truncation import best_kept, truncation_mask

WIDTHS = (1, 2, 7, 16, 17, 40, 300)
"""Around the width of a vector, with and without a remainder."""
PENALTY = 96.0


def compiled() -> PassLibrary:
    found = library()
    assert found is not None
    return found


@st.composite
def rows(draw: st.DrawFn) -> torch.Tensor:
    """Logits in a few steps, so that many are equal; some tokens are excluded by the model."""
    width, seed = draw(st.sampled_from(WIDTHS)), draw(st.integers(0, 1 << 20))
    luck = np.random.default_rng(seed)
    numbers = luck.normal(0, draw(st.sampled_from([0.1, 3.0, 30.0])), (2, width)).round(
        draw(st.sampled_from([0, 1, 5]))
    )
    numbers[luck.random((2, width)) < draw(st.sampled_from([0, 0.3]))] = -np.inf
    numbers[:, luck.integers(width)] = 0.5
    return torch.tensor(numbers, dtype=torch.float32)


SETTINGS = st.builds(
    Sampling,
    st.sampled_from([1e-300, 0.05, 0.6, 1.0, 2.0]),
    st.sampled_from([0, 1, 2, 5, 16, 1000, (1 << 32) + 1]),
    st.sampled_from([1e-6, 0.3, 0.77, 0.9, 0.999, 1.0]),
)


@given(rows(), SETTINGS)
def test_the_tokens_with_a_penalty_are_those_that_the_reference_excludes(logits: torch.Tensor, by: Sampling) -> None:
    offsets = [*torch.linspace(-1, 1, 2 * logits.shape[1]).view(2, -1)]
    found = truncated_offsets(compiled(), logits, offsets, [by, by], PENALTY)
    expected = torch.stack(offsets) - PENALTY * ~truncation_mask(logits, by)
    assert torch.equal(found, expected if by.truncates else torch.stack(offsets))


@given(rows(), SETTINGS.filter(lambda by: by.truncates))
def test_the_choice_is_the_best_kept_token(logits: torch.Tensor, by: Sampling) -> None:
    offsets = torch.linspace(-3, 3, logits.shape[1]).flip(0)
    choice = kept_choice(logits, [offsets, offsets], [by, by])
    assert choice is not None
    for row in range(2):
        scores = (logits[row] + offsets).numpy()
        assert choice(row) == best_kept(logits[row].numpy(), scores, by)


def test_settings_differ_by_row_and_a_greedy_row_keeps_all() -> None:
    logits = torch.tensor([[3.0, 1.0, 2.0, 2.0]] * 3)
    settings = [Sampling(1.0, 1), Sampling(1.0, 3), Sampling()]
    found = truncated_offsets(compiled(), logits, None, settings, PENALTY)
    assert found.tolist() == [[0, -PENALTY, -PENALTY, -PENALTY], [0, -PENALTY, 0, 0], [0, 0, 0, 0]]


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_row_without_a_choice_keeps_all_tokens(number: float) -> None:
    logits = torch.tensor([[1.0, number, 0.0]])
    assert truncated_offsets(compiled(), logits, None, [Sampling(1.0, 1)], PENALTY).tolist() == [[0, 0, 0]]
