"""Rounds on the device end where those of the host do if the target's logits leave no choice."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from decoder import RunConfig
from decoder.engine import Engine
from decoder.methods import METHODS
from decoder.sampling.settings import Sampling
from decoder.session.cuda_graph.session import GraphSession
from tests import tiny
from tests.decoder.broken_targets import damaged
from tests.decoder.makers import PROMPT, TinyModels, play
from tests.decoder.session.cuda_graph.matching import recorded, with_slots

LENGTH = 24
SAMPLINGS = {"greedy": Sampling(), "sampled": Sampling(0.8), "truncated": Sampling(0.8, 20, 0.9)}


@pytest.mark.parametrize(("make", "value"), [(with_slots, math.nan), (recorded, math.inf)])
@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_graph_rounds_end_with_the_sentence_of_the_host_s_rounds(
    tiny_models: TinyModels, make: Callable[[Engine], Engine], value: float, sampling: Sampling
) -> None:
    pair = tiny_models.pair("llama")
    sound = tiny_models.loaded(pair, "float32")
    config = RunConfig(("ar", "linear", "dynatree", "auto"), LENGTH, parameters={"sampling": sampling})
    text = play(sound, only(config, "ar")).tokens("ar")
    token = next(token for place, token in enumerate(text[2:], 2) if token not in text[:place])
    broken = tiny.TinyPair(damaged(pair.target, tiny_models.fresh(), token, value), pair.draft)
    engine = tiny_models.loaded(broken, "float32")
    on_host = play(engine, only(config, "ar"))
    on_device = make(engine)
    assert isinstance(METHODS["ar"].open(on_device, tiny_models.prompt_tokens(pair, PROMPT), config), GraphSession)
    race = play(on_device, config)
    assert race.end("ar") == on_host.end("ar")
    for method in config.methods:
        tokens, end = race.tokens(method), race.end(method)
        assert end.reason == "error"
        assert f"logits in round {len(race.rounds(method)) + 1} are NaN or infinite, computed in float32" in (
            end.error or ""
        )
        assert tokens == text[: len(tokens)]


def only(config: RunConfig, *methods: str) -> RunConfig:
    return RunConfig(methods, config.max_new_tokens, parameters=config.parameters)


def test_trees_of_lookups_end_with_the_sentence_too(tiny_models: TinyModels) -> None:
    pair = tiny_models.pair("llama")
    last = tiny_models.prompt_tokens(pair, PROMPT)[-1]
    broken = tiny.TinyPair(damaged(pair.target, tiny_models.fresh(), last, math.nan), pair.draft)
    engine = tiny_models.loaded(broken, "float32")
    by_lookup = with_slots(replace(engine, pair=replace(engine.pair, draft=None)))
    race = play(by_lookup, RunConfig(("linear", "dynatree"), LENGTH))
    assert [race.end(method).reason for method in ("linear", "dynatree")] == ["error", "error"]
