"""Fixtures of the tests of rounds on a device."""

import pytest

from decoder.engine import Engine
from tests.decoder.makers import TinyModels
from tests.decoder.session.cuda_graph.matching import Devices, opened_on_device
from tests.decoder.session.cuda_graph.stub_kernels import Stubs


@pytest.fixture(scope="module")
def devices(tiny_models: TinyModels) -> Devices:
    return Devices(tiny_models)


@pytest.fixture
def stubs(monkeypatch: pytest.MonkeyPatch) -> Stubs:
    return Stubs(monkeypatch)


@pytest.fixture
def _on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions are opened as on CUDA, but on the CPU."""
    monkeypatch.setattr(Engine, "session", opened_on_device)
