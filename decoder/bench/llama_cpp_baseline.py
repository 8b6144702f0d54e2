"""Plain decoding by llama.cpp as a contender: one token per pass, always the most probable one, without the engine.

llama.cpp's own speculative decoding is not part of its C API, so it is no contender here.
"""

import time
from collections.abc import Sequence

from decoder.bench.contenders import BASELINE, Contender, Trial, running
from decoder.engine import Engine
from decoder.forward.llama_cpp.forward import LlamaForward
from decoder.models.pair import Pair
from decoder.run.config import RunConfig
from decoder.session.protocol import Outcome, TokenLimit
from decoder.tree import TokenTree

NAME = "llama.cpp"


def llama_cpp_baselines(pair: Pair, config: RunConfig) -> list[Contender]:
    """The contender, if llama.cpp computes the target and decoding is greedy; else none."""
    if not isinstance(pair.target.runs_by, LlamaForward) or config.sampling.temperature:
        return []
    return [Contender(NAME, NAME, lambda engine, ids: _decoded(engine, ids, config), {})]


def _decoded(engine: Engine, prompt_ids: Sequence[int], config: RunConfig) -> Trial:
    pair = engine.pair
    forward = pair.target.runs_by
    assert isinstance(forward, LlamaForward), "as when the contender was made"  # noqa: S101 - a programmer's mistake
    limit, outcomes = TokenLimit(pair.eos, config.max_new_tokens), list[tuple[Outcome, float]]()
    opened = time.perf_counter()
    tokens = forward.plain(prompt_ids, len(prompt_ids) + config.max_new_tokens, pair.vocabulary)
    started = time.perf_counter()
    for token in tokens:
        committed, finished = limit.cut([token])
        outcome = Outcome(TokenTree([prompt_ids[-1]]), committed=committed, target_forwards=1, draft_forwards=0)
        outcomes.append((outcome, time.perf_counter() - started))
        if finished:
            break
    tallies = running(started - opened, BASELINE, outcomes)
    return Trial(tallies[-1], tallies)
