"""Comparison of the engine's rounds with the reference's: nodes, parents, log-probabilities, acceptance, knobs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from decoder import RunConfig
from decoder.events import Round
from decoder.methods import METHODS
from tests import tiny
from tests.decoder.makers import PROMPT, Played, TinyModels
from tests.decoder.session.all_methods import Turns, turned
from tests.reference import AMBIGUOUS, Oracle, Step, simulate
from tests.sampled_reference import SampledOracle


@dataclass
class Score:
    """Counts of compared rounds and nodes, by which a test ensures that it has compared enough."""

    rounds: int = 0
    discarded: int = 0
    nodes: int = 0
    deep: int = 0

    def add(self, other: "Score") -> None:
        for name, count in vars(other).items():
            setattr(self, name, getattr(self, name) + count)


WITHIN = 1e-3
"""Largest difference of log-probabilities in float32: engine and reference add products in different orders, which
depend on the processor, and layers with states carry the difference on. Wrong positions or masks change them by far
more.
"""


def assert_same_rounds(rounds: Sequence[Round], steps: Sequence[Step], ambiguous: float = AMBIGUOUS) -> Score:
    """Compares round by round, up to the first round that depends on rounding (`margin` below `ambiguous`)."""
    score = Score()
    for event, step in zip(rounds, steps, strict=False):
        if step.margin < ambiguous:
            score.discarded += 1
            return score
        assert (event.tokens, event.parents) == (step.tokens, step.parents)
        assert event.logprobs == pytest.approx(step.logprobs, abs=WITHIN)
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


def oracle(models: TinyModels, name: str, dtype: str, config: RunConfig) -> Oracle:
    """The reference of a pair under the run's sampling."""
    pair = models.pair(name)
    if config.sampling.greedy:
        return models.oracle(pair, dtype)
    modules = models.plain(pair.target, dtype), models.plain(pair.draft, dtype)
    return SampledOracle(*modules, tiny.CONTEXT, sampling=config.sampling, seed=config.seed)


def steps_of(
    models: TinyModels, name: str, dtype: str, config: RunConfig, prompt: str = PROMPT, turns: Turns | None = None
) -> list[Step]:
    """The reference's rounds of a run of one method."""
    (method,), ids = config.methods, models.prompt_tokens(models.pair(name), prompt)
    rules: Any = config.rules(own) if (own := METHODS[method].rules) else None
    return simulate(oracle(models, name, dtype, config), ids, method, rules, config.max_new_tokens, turns)


def compare(
    models: TinyModels,
    name: str,
    dtype: str,
    config: RunConfig,
    prompt: str = PROMPT,
    *,
    turns: Turns | None = None,
    ambiguous: float = AMBIGUOUS,
) -> tuple[Score, Played]:
    """Runs engine and reference on one method, and compares their rounds."""
    played = turned(models.engine(name, dtype), config, turns or {}, prompt)
    steps = steps_of(models, name, dtype, config, prompt, turns)
    return assert_same_rounds(played.rounds(config.methods[0]), steps, ambiguous), played
