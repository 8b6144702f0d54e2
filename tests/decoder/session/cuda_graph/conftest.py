"""Fixtures of the tests of rounds on a device."""

import pytest

from tests.decoder.makers import TinyModels
from tests.decoder.session.cuda_graph.matching import Devices
from tests.decoder.session.cuda_graph.stub_kernels import Stubs


@pytest.fixture(scope="module")
def devices(tiny_models: TinyModels) -> Devices:
    return Devices(tiny_models)


@pytest.fixture
def stubs(monkeypatch: pytest.MonkeyPatch) -> Stubs:
    return Stubs(monkeypatch)
