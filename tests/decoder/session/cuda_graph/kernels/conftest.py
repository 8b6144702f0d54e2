"""Fixtures of the kernels' tests."""

from collections.abc import Iterator

import pytest

from decoder.system.device import without_gradients
from tests.decoder.session.cuda_graph.kernels.interpreted import interpreted


@pytest.fixture
def by_interpreter() -> Iterator[None]:
    """Kernels run in Triton's interpreter."""
    with without_gradients(), interpreted():
        yield
