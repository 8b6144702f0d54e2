"""Comparison of the engine's rounds with the reference's: nodes, parents, log-probabilities, acceptance, knobs."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from decoder.events import Round
from tests.reference import AMBIGUOUS, Step


@dataclass
class Score:
    """Counts of compared rounds and nodes, by which a test ensures that it has compared enough."""

    rounds: int = 0
    discarded: int = 0
    nodes: int = 0
    deep: int = 0

    def add(self, other: "Score") -> None:
        """Adds the counts of another comparison."""
        self.rounds += other.rounds
        self.discarded += other.discarded
        self.nodes += other.nodes
        self.deep += other.deep


WITHIN = 1e-3
"""Largest difference of log-probabilities in float32: engine and reference add products in different orders, which
depend on the processor, and layers with states carry the difference on. Wrong positions or masks change them by far
more.
"""


def assert_same_rounds(
    rounds: Sequence[Round], steps: Sequence[Step], ambiguous: float = AMBIGUOUS, within: float = WITHIN
) -> Score:
    """Compares round by round, up to the first round that depends on rounding (`margin` below `ambiguous`).

    Log-probabilities may differ by `within`.
    """
    score = Score()
    for event, step in zip(rounds, steps, strict=False):
        if step.margin < ambiguous:
            score.discarded += 1
            return score
        assert (event.tokens, event.parents) == (step.tokens, step.parents)
        assert event.logprobs == pytest.approx(step.logprobs, abs=within)
        assert (event.accepted, event.committed, event.position) == (step.accepted, step.committed, step.position)
        if step.knobs is None:
            assert event.knobs is None
        else:
            assert event.knobs is not None
            seen = (event.knobs.tau_h, event.knobs.tau_l, event.knobs.d0)
            assert seen == pytest.approx((step.knobs.tau_h, step.knobs.tau_l, step.knobs.d0), abs=1e-9)
        score.rounds += 1
        score.nodes += len(step.tokens)
        score.deep += len(step.accepted) > 2
    assert len(rounds) == len(steps)
    return score
