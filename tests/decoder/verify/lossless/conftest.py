"""Fixtures of the tests that enumerate all outcomes."""

import pytest

from decoder.verify.lossless import spectr
from decoder.verify.lossless.rows import Row


@pytest.fixture(autouse=True)
def _divided_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches the results of SpecTr's bisection, a pure function that takes most of the tests' time."""
    divide = spectr.divide
    known: dict[tuple[bytes, bytes, int], spectr.Division] = {}

    def remembered(target_probs: Row, draft_probs: Row, draws: int) -> spectr.Division:
        key = target_probs.tobytes(), draft_probs.tobytes(), draws
        if key not in known:
            known[key] = divide(target_probs, draft_probs, draws)
        return known[key]

    monkeypatch.setattr(spectr, "divide", remembered)
