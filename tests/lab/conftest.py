"""Fixtures of the laboratory's tests: those of the engine's tests."""

from tests.decoder.conftest import _costs_measured_briefly, _one_thread, by_interpreter, tiny_models

__all__ = ["_costs_measured_briefly", "_one_thread", "by_interpreter", "tiny_models"]
