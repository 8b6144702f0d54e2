"""Fixtures of the tests that load models: those of the engine's tests."""

from tests.decoder.conftest import _costs_measured_briefly, _one_thread, tiny_models

__all__ = ["_costs_measured_briefly", "_one_thread", "tiny_models"]
