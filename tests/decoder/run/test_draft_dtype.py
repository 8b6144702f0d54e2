"""A draft in a dtype of its own: the text stays the target's, with every method and on every path."""

from typing import Any

import pytest
import torch

from decoder import RunConfig, decode, load_pair
from decoder.engine import Engine
from decoder.errors import ConfigError
from decoder.events import Run, arithmetic
from decoder.methods.dynatree import DynaTree
from decoder.methods.linear import Linear
from decoder.sampling.settings import Sampling, Schedule
from tests import tiny
from tests.decoder.makers import TinyModels, texts_of
from tests.decoder.session.cuda_graph.matching import match, recorded

PROMPT = "The tree grows"
METHODS = ("ar", "linear", "fixed", "dynatree", "auto", "alg1")


def mixed(pair: tiny.TinyPair, dtype: str = "float32", draft_dtype: str = "bfloat16", **how: Any) -> Engine:
    return load_pair(str(pair.target), str(pair.draft), device="cpu", dtype=dtype, draft_dtype=draft_dtype, **how)


def texts(engine: Engine, config: RunConfig) -> dict[str, list[int]]:
    return texts_of(engine, config, PROMPT)[2]


@pytest.mark.parametrize(
    ("family", "draft_dtype", "temperature"),
    [
        *(("neox", "bfloat16", 0.0), ("neox", "float16", 0.8), ("neox", "float64", 0.8)),
        *(("llama", "float16", 0.0), ("qwen3", "bfloat16", 0.8)),
    ],
)
def test_every_method_writes_what_the_target_alone_writes(
    tiny_models: TinyModels, family: str, draft_dtype: str, temperature: float
) -> None:
    pair = tiny_models.pair(family)
    alone = texts(tiny_models.loaded(pair, "float32"), RunConfig(("ar",), 16, temperature=temperature))
    found = texts(mixed(pair, draft_dtype=draft_dtype), RunConfig(METHODS, 16, temperature=temperature))
    assert found == dict.fromkeys(METHODS, alone["ar"])


def test_it_stays_exact_in_half_precision(tiny_models: TinyModels) -> None:
    found = texts(mixed(tiny_models.pair("neox"), "bfloat16", "float16", exact=True), RunConfig(METHODS, 24))
    assert found == dict.fromkeys(METHODS, found["ar"])


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("rules", [Linear(), DynaTree()], ids=["linear", "dynatree"])
def test_rounds_on_the_device_are_those_of_the_host(
    tiny_models: TinyModels, rules: Linear | DynaTree, temperature: float
) -> None:
    pair = tiny_models.pair("neox")
    engine = recorded(mixed(pair, "float64", "float32"))
    prompt = tiny_models.prompt_tokens(pair, PROMPT)
    match(engine.sampled(3, Schedule(Sampling(temperature))), prompt, 30, rules)


def test_each_model_computes_in_its_own_and_the_run_names_both(tiny_models: TinyModels) -> None:
    engine = mixed(tiny_models.pair("neox"))
    assert (engine.pair.target.dtype, engine.pair.draft_model.dtype) == (torch.float32, torch.bfloat16)
    run = next(event for event in decode(engine, PROMPT, RunConfig(("ar",), 1)) if isinstance(event, Run))
    assert (run.dtype, run.draft_dtype) == ("float32", "bfloat16")
    assert run.arithmetic == "float32, draft bfloat16"


def test_by_default_it_is_that_of_the_target(tiny_models: TinyModels) -> None:
    assert mixed(tiny_models.pair("neox"), draft_dtype="auto").pair.draft_model.dtype is torch.float32


def test_the_words_name_the_draft_only_where_it_differs() -> None:
    assert arithmetic("float32", "float32") == arithmetic("float32", "") == "float32"
    assert arithmetic("bfloat16", "float16", exact=True) == "bfloat16 exact, draft float16"


def test_an_unknown_one_is_refused(tiny_models: TinyModels) -> None:
    with pytest.raises(ConfigError, match=r"the draft's dtype is 'int4'; give auto, float64, float32"):
        mixed(tiny_models.pair("neox"), draft_dtype="int4")


def test_one_that_leaves_no_room_to_be_exact_is_refused(tiny_models: TinyModels) -> None:
    with pytest.raises(ConfigError, match="--exact sums in float64"):
        mixed(tiny_models.pair("neox"), draft_dtype="float64", exact=True)
