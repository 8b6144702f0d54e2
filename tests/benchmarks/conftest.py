"""Fixtures of the engine's tests, for measurements that decode with tiny models."""

from tests.decoder.conftest import _costs_measured_briefly, _one_thread, tiny_models

__all__ = ["_costs_measured_briefly", "_one_thread", "tiny_models"]
