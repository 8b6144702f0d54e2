"""Fixtures of the engine's tests."""

from collections.abc import Iterator

import pytest
import torch

from decoder.draft.tree_size import cost_profile
from decoder.system.device import without_gradients
from tests.decoder.makers import TinyModels


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """One thread, because tiny models are slower with more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def _costs_measured_briefly() -> Iterator[None]:
    """Three passes of each size instead of half a second, because no text depends on the measured costs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost_profile, "REPEATS", 3)
        yield


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> TinyModels:
    return TinyModels(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def by_interpreter() -> Iterator[None]:
    from tests.triton_tools import interpreted  # noqa: PLC0415 - needs triton, which exists for Linux only

    with without_gradients(), interpreted():
        yield
