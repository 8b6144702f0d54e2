"""Texts that fill the context, and refused prompts."""

from dataclasses import replace
from typing import Any

import pytest

from decoder import DynaTree, Fixed, Linear, RunConfig, decode
from decoder.errors import ConfigError, ModelError, PromptError
from decoder.events import Run, decode_line, encode
from decoder.tree import depths
from tests.decoder.makers import METHODS, Played, TinyModels, methods_of
from tests.decoder.session.all_methods import CONFIG, PROMPT, TREES
from tests.decoder.session.round_comparison import assert_same_rounds
from tests.reference import simulate
from tests.tiny import CONTEXT


def long_prompt(tiny_models: TinyModels, name: str, tokens: int) -> str:
    """A prompt of exactly `tokens` tokens: each digit is one token."""
    prompt = ("0123456789" * CONTEXT)[:tokens]
    assert len(tiny_models.prompt_tokens(tiny_models.pair(name), prompt)) == tokens
    return prompt


@pytest.mark.parametrize("name", ["neox", "gpt2"])
def test_a_text_may_fill_the_context_to_its_last_position(tiny_models: TinyModels, name: str) -> None:
    pair, prompt = tiny_models.pair(name), long_prompt(tiny_models, name, CONTEXT - 12)
    tree = DynaTree(rho_stop=0, rho_deep=0, tau=0, n_max=20)
    config = RunConfig(methods_of(name), 12, dynatree=tree, fixed=Fixed(tau=0, n_max=20))
    played = tiny_models.play(pair, "float32", prompt, config)
    expected = tiny_models.generate(pair, "float32", prompt, 12)
    assert {method: played.tokens(method) for method in config.methods} == dict.fromkeys(config.methods, expected)


@pytest.mark.parametrize("method", TREES)
def test_trees_are_as_deep_as_the_context_allows_and_no_deeper(tiny_models: TinyModels, method: str) -> None:
    pair, prompt = tiny_models.pair("neox"), long_prompt(tiny_models, "neox", CONTEXT - 12)
    tree = DynaTree(rho_stop=0, rho_deep=0, tau=0, n_max=20, history=False)
    config = RunConfig((method,), 12, dynatree=tree, fixed=Fixed(tau=0, n_max=20))
    played = tiny_models.play(pair, "float64", prompt, config)
    parameters: dict[str, Any] = {
        "dynatree": tree,
        "alg1": tree,
        "fixed": config.of(Fixed),
        "linear": config.of(Linear),
    }
    ids = tiny_models.prompt_tokens(pair, prompt)
    assert_same_rounds(
        played.rounds(method), simulate(tiny_models.oracle(pair, "float64"), ids, method, parameters[method], 12)
    )
    for event in played.rounds(method):
        root = len(ids) + event.position - (method != "alg1")
        assert root + max(depths(event.parents)) < CONTEXT


@pytest.mark.parametrize("length", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("method", TREES)
def test_the_length_limit_shortens_what_is_told_of_a_tree_and_not_what_is_drafted(
    tiny_models: TinyModels, played: Played, method: str, length: int
) -> None:
    config = replace(CONFIG, methods=(method,), max_new_tokens=length)
    short = tiny_models.play(tiny_models.pair("neox"), "float32", PROMPT, config)
    assert short.tokens(method) == played.tokens(method)[:length]
    for told, event in zip(short.rounds(method), played.rounds(method), strict=False):
        levels = [depth + (method == "alg1") for depth in depths(event.parents)]
        kept = [node for node, level in enumerate(levels) if node == 0 or level < length - event.position]
        assert told.tokens == [event.tokens[node] for node in kept]
        assert told.draft_forwards == event.draft_forwards


def test_a_prompt_that_leaves_too_little_room_names_the_largest_number_that_fits(tiny_models: TinyModels) -> None:
    prompt = long_prompt(tiny_models, "neox", CONTEXT - 12)
    with pytest.raises(PromptError, match=r"\b12\b"):
        next(decode(tiny_models.engine("neox"), prompt, RunConfig(("ar",), 13)))


@pytest.mark.parametrize("tokens", [CONTEXT, CONTEXT + 1, 3 * CONTEXT])
def test_a_prompt_as_long_as_the_context_is_refused(tiny_models: TinyModels, tokens: int) -> None:
    prompt = long_prompt(tiny_models, "neox", tokens)
    with pytest.raises(PromptError, match=f"{tokens} tokens"):
        next(decode(tiny_models.engine("neox"), prompt, RunConfig(("ar",), 1)))


def test_an_empty_prompt_is_refused(tiny_models: TinyModels) -> None:
    with pytest.raises(PromptError, match="empty") as refusal:
        next(decode(tiny_models.engine("neox"), "", RunConfig(("ar",), 1)))
    assert refusal.value.exit_code == 2


def test_lone_surrogates_of_a_prompt_are_replaced(tiny_models: TinyModels) -> None:
    pair = tiny_models.pair("neox")
    played = tiny_models.play(pair, "float32", "a\ud800b", RunConfig(("ar",), 4))
    run = played.events[0]
    assert isinstance(run, Run)
    assert run.prompt == "a\N{REPLACEMENT CHARACTER}b"
    assert run.prompt_tokens == tiny_models.prompt_tokens(pair, run.prompt)
    assert decode_line(encode(run), 1) == run


def test_an_unknown_method_is_refused_with_the_known_ones(tiny_models: TinyModels) -> None:
    with pytest.raises(ConfigError, match=f"warp.*{', '.join(METHODS)}"):
        next(decode(tiny_models.engine("neox"), PROMPT, RunConfig(("ar", "warp"), 1)))


def test_models_that_transformers_refuses_are_refused_in_one_line(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = tiny_models.engine("neox", "float64")
    monkeypatch.setattr(type(engine.pair.target.hf.module), "_is_stateful", True)
    with pytest.raises(
        ModelError, match=r"hf does not run with target and draft: .*stateful.*; leave hf out of --m"
    ) as refusal:
        list(decode(engine, PROMPT, RunConfig(("hf",), 4)))
    assert "\n" not in str(refusal.value)
