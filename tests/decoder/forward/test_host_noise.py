"""Gumbel noise of the compiled library is the reference's, up to rounding."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoder.forward.compiled import library
from decoder.forward.compiled.library import gumbel_on_host
from decoder.sampling.noise import gumbel
from tests import sampled_reference


@given(
    seed=st.integers(-(2**63), 2**64),
    positions=st.lists(st.integers(0, 2**40), min_size=1, max_size=4),
    vocabulary=st.sampled_from([1, 7, 16, 17, 300]),
)
def test_compiled_noise_is_that_of_numpy(seed: int, positions: list[int], vocabulary: int) -> None:
    found = gumbel_on_host(seed, positions, vocabulary).numpy()
    np.testing.assert_allclose(found, gumbel(seed, positions, vocabulary), rtol=1e-7, atol=0)


def test_compiled_noise_is_that_of_the_slow_reference() -> None:
    found = gumbel_on_host(3, [5, 9], 40).tolist()
    assert found[1] == pytest.approx([sampled_reference.gumbel(3, 9, token) for token in range(40)], rel=1e-7)


def test_a_row_has_the_same_bits_alone_and_among_others() -> None:
    together = gumbel_on_host(3, range(20), 50)
    assert all(gumbel_on_host(3, [place], 50)[0].equal(together[place]) for place in range(20))
    assert gumbel_on_host(3, [4], 33)[0].equal(together[4, :33])


def test_without_a_library_numpy_computes_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "library", lambda: None)
    assert gumbel_on_host(3, [5], 40)[0].tolist() == gumbel(3, [5], 40)[0].astype(np.float32).tolist()
