"""Losslessness: with any drafts, the text is that of plain greedy decoding of the target."""

import random
from collections.abc import Sequence
from itertools import product

import pytest
import torch
from transformers import GenerationConfig

from decoder import DynaTree, Fixed, Linear, RunConfig
from decoder.events import Round
from decoder.methods.streaming import Streaming
from tests import tiny
from tests.decoder.makers import METHODS, Played, TinyModels, methods_of
from tests.tiny import VOCABULARY

PROMPT = "The tree grows"
PROMPTS = {
    "one token": "T",
    "two tokens": "T?",
    "several sentences": "A small model guesses; a large model reads every guess at once. The tree grows.",
    "no ASCII": "Äöü — 木が育つ 🌳",
    "spaces and line ends": " \n\n  The\ttree ",
    "nothing": "",
}
PAPER = DynaTree()
TREES = {
    "by default": RunConfig(("dynatree", "alg1"), 40),
    "bushy": RunConfig(
        ("dynatree", "alg1", "fixed", "linear"),
        24,
        dynatree=DynaTree(branching=(4, 4, 4), rho_stop=0, rho_deep=0, tau=0, d0=3, d_max=4, n_max=100),
        fixed=Fixed(depth=3, branching=5, tau=0, n_max=90),
        linear=Linear(12),
    ),
    "best": RunConfig(
        ("dynatree", "fixed", "linear"),
        24,
        dynatree=DynaTree(branching=(3, 3, 3), rho_stop=0, rho_deep=0, tau=0, d_max=6, n_max=17, selection="best"),
        fixed=Fixed(depth=9, branching=1, tau=0),
        linear=Linear(1),
    ),
    "tiny": RunConfig(
        ("dynatree", "alg1", "fixed"), 24, dynatree=DynaTree(n_max=1), fixed=Fixed(depth=1, branching=1, n_max=1)
    ),
    "cut siblings": RunConfig(
        ("dynatree", "alg1", "fixed"),
        24,
        dynatree=DynaTree(branching=(3, 3, 3), rho_stop=0, tau=0, n_max=8),
        fixed=Fixed(depth=4, branching=3, tau=0, n_max=8),
    ),
}


def assert_all_write(played: Played, expected: Sequence[int], methods: Sequence[str] = METHODS) -> None:
    assert {method: played.tokens(method) for method in methods} == dict.fromkeys(methods, expected)


def assert_all_end(played: Played, reason: str, methods: Sequence[str] = METHODS) -> None:
    assert {method: played.end(method).reason for method in methods} == dict.fromkeys(methods, reason)


@pytest.mark.parametrize(
    ("pair", "dtype", "limit"),
    [
        *(("neox", "float32", limit) for limit in (1, 2, 16, 64)),
        *product(("llama", "qwen3", "gpt2"), ("float64",), (1, 2, 16)),
        *(("neox", "float64", 16), ("gpt2", "float32", 16)),
        *(("llama-strange", "float32", 12), ("gpt2-strange", "float32", 12)),
    ],
)
def test_every_method_writes_the_text_of_plain_greedy_search(
    tiny_models: TinyModels, pair: str, dtype: str, limit: int
) -> None:
    methods = methods_of(pair)
    played = tiny_models.play(pair, dtype, PROMPT, RunConfig(methods, limit, dynatree=PAPER))
    expected = tiny_models.generate(pair, dtype, PROMPT, limit)
    assert len(expected) == limit
    assert_all_write(played, expected, methods)
    assert_all_end(played, "length", methods)


@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS)
def test_any_prompt_is_continued_exactly(tiny_models: TinyModels, prompt: str) -> None:
    """An empty one where the tokenizer begins every text."""
    pair = "neox" if prompt else "begin"
    played = tiny_models.play(pair, "float32", prompt, RunConfig(METHODS, 20, dynatree=PAPER))
    assert_all_write(played, tiny_models.generate(pair, "float32", prompt, 20))


@pytest.mark.parametrize("method", METHODS)
def test_a_prompt_that_is_read_in_several_parts_is_continued_exactly(tiny_models: TinyModels, method: str) -> None:
    prompt, config = "0123456789" * 110, RunConfig((method,), 12, dynatree=PAPER, streaming=Streaming(window=1200))
    played = tiny_models.play("long", "float32", prompt, config)
    assert played.tokens(method) == tiny_models.generate("long", "float32", prompt, 12)


@pytest.mark.parametrize("method", [method for method in METHODS if method != "hf"])
def test_of_two_equal_tokens_the_lower_id_is_written(tiny_models: TinyModels, method: str) -> None:
    played = tiny_models.play("twins", "float64", "The tree", RunConfig((method,), 20, dynatree=PAPER))
    assert played.tokens(method) == tiny_models.generate("twins", "float64", "The tree", 20)
    assert all(token % 2 == 0 for token in played.tokens(method))


@pytest.mark.parametrize(
    ("family", "tree"),
    [
        *(("neox", tree) for tree in TREES),
        *(("llama", "bushy"), ("llama", "cut siblings"), ("qwen3", "best"), ("gpt2", "bushy"), ("gpt2", "by default")),
    ],
)
def test_the_shape_of_the_tree_does_not_change_the_text(tiny_models: TinyModels, family: str, tree: str) -> None:
    config = TREES[tree]
    played = tiny_models.play(family, "float32", PROMPT, config)
    assert_all_write(played, tiny_models.generate(family, "float32", PROMPT, config.max_new_tokens), config.methods)


ENDS = (0, 1, 2, 3, 6, 11)


@pytest.mark.parametrize(
    ("family", "at"), [*(("neox", at) for at in ENDS), *((family, 8) for family in ("llama", "qwen3", "gpt2"))]
)
def test_the_text_ends_with_its_first_end_token(tiny_models: TinyModels, family: str, at: int) -> None:
    methods, dtype, most = methods_of(family), *(("float32", 40) if family == "neox" else ("float64", 24))
    free = tiny_models.generate(family, dtype, PROMPT, most)
    pair = tiny_models.ending(family, eos_token_id=free[at])
    played = tiny_models.play(pair, dtype, PROMPT, RunConfig(methods, most, dynatree=PAPER))
    expected = free[: free.index(free[at]) + 1]
    assert tiny_models.generate(pair, dtype, PROMPT, most, [free[at]]) == expected
    assert_all_write(played, expected, methods)
    assert_all_end(played, "eos", methods)


def test_end_tokens_were_met_inside_a_burst(tiny_models: TinyModels) -> None:
    """Otherwise the tests above would not test that a burst is cut at an end token."""
    free = tiny_models.generate("neox", "float32", PROMPT, 40)
    endings = [tiny_models.ending("neox", eos_token_id=free[at]) for at in ENDS]
    played = [tiny_models.play(pair, "float32", PROMPT, RunConfig(METHODS, 40, dynatree=PAPER)) for pair in endings]
    last = [run.rounds(method)[-1] for run in played for method in ("dynatree", "fixed", "linear", "alg1")]
    assert any(ends_with_a_drafted_token(event) for event in last)


def ends_with_a_drafted_token(event: Round) -> bool:
    """Whether the last committed token is a drafted node after the accepted ones: it ended the text within a burst."""
    above = event.accepted[-1] if event.accepted else -1 if event.method == "alg1" else 0
    nodes = zip(event.parents, event.tokens, strict=True)
    return (above, event.committed[-1]) in nodes


def test_all_end_tokens_of_the_generation_config_count(tiny_models: TinyModels) -> None:
    free = tiny_models.generate("neox", "float32", PROMPT, 40)
    ids = [free[30], free[9], 269]
    pair = tiny_models.ending("neox", eos_token_id=ids)
    played = tiny_models.play(pair, "float32", PROMPT, RunConfig(METHODS, 40, dynatree=PAPER))
    assert_all_write(played, free[: min(free.index(free[30]), free.index(free[9])) + 1])


@pytest.mark.parametrize("past", [0, 1])
def test_an_end_token_at_the_limit_ends_the_text_and_one_past_it_is_not_written(
    tiny_models: TinyModels, past: int
) -> None:
    free = tiny_models.generate("neox", "float32", PROMPT, 40)
    at = next(index for index in range(5, 40) if free[index] not in free[:index])
    pair = tiny_models.ending("neox", eos_token_id=free[at])
    played = tiny_models.play(pair, "float32", PROMPT, RunConfig(METHODS, at + 1 - past, dynatree=PAPER))
    assert_all_write(played, free[: at + 1 - past])
    assert_all_end(played, "length" if past else "eos")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["wide-target", "wide-draft"])
def test_ids_that_only_the_target_has_are_written_and_those_that_only_the_draft_has_are_not(
    tiny_models: TinyModels, name: str, method: str
) -> None:
    played = tiny_models.play(name, "float32", PROMPT, RunConfig((method,), 33, dynatree=PAPER))
    assert played.tokens(method) == tiny_models.generate(name, "float32", PROMPT, 33)
    assert (max(played.tokens(method)) >= VOCABULARY) == (name == "wide-target")


PENALTIES = {
    "repetition_penalty": 5.0, "no_repeat_ngram_size": 1, "do_sample": True, "temperature": 3.0, "min_length": 30,
    "max_length": 21,
}  # fmt: skip


def test_penalties_and_bans_of_the_checkpoint_are_off(tiny_models: TinyModels) -> None:
    """They would change the text."""
    free = tiny_models.generate("neox", "float32", PROMPT, 24)
    pair = tiny_models.ending("neox", bad_words_ids=[[free[1]]], suppress_tokens=[free[2]], **PENALTIES)
    played = tiny_models.play(pair, "float32", PROMPT, RunConfig(METHODS, 24, dynatree=PAPER))
    assert_all_write(played, free)
    ids = torch.tensor([tiny_models.prompt_tokens("neox", PROMPT)])
    settings = GenerationConfig(max_new_tokens=24, repetition_penalty=5.0, no_repeat_ngram_size=1, pad_token_id=0)
    out = tiny_models.plain(pair.target, "float32").generate(ids, generation_config=settings)
    assert out[0, ids.shape[1] :].tolist() != free


def test_the_summary_says_that_every_method_is_identical_to_ar(tiny_models: TinyModels) -> None:
    played = tiny_models.play("neox", "float32", PROMPT, RunConfig(METHODS, 64, dynatree=PAPER))
    told = {method: played.figures(method) for method in METHODS}
    compared = {method: (own.identical_to_ar, own.first_difference, own.near_tie) for method, own in told.items()}
    assert compared == dict.fromkeys(METHODS, (True, None, None))


@pytest.mark.parametrize("method", METHODS)
def test_a_second_run_of_the_same_pair_gives_the_same_rounds(tiny_models: TinyModels, method: str) -> None:
    alone = tiny_models.play("llama", "float64", PROMPT, RunConfig((method,), 16, dynatree=PAPER))
    together = tiny_models.play("llama", "float64", PROMPT, RunConfig(METHODS, 16, dynatree=PAPER))
    again = [event.committed for event in together.rounds(method)]
    # The rounds of auto depend on measured times, those of hf on the streamer's thread.
    assert [event.committed for event in alone.rounds(method)] == again or method in ("auto", "hf")
    assert alone.tokens(method) == together.tokens(method)


WORDS = " ".join(tiny.SENTENCES).split()


@pytest.mark.parametrize("texts", [8, pytest.param(200, marks=pytest.mark.soak)])
@pytest.mark.parametrize("family", ["neox", "llama", "windows", "half-windows", "qwen3"])
def test_random_prompts_are_continued_exactly(tiny_models: TinyModels, family: str, texts: int) -> None:
    luck, config = random.Random(texts), RunConfig(("dynatree", "auto", "linear"), 24)
    for _ in range(texts):
        prompt = " ".join(luck.choices(WORDS, k=luck.randint(2, 24)))
        played = tiny_models.play(family, "float32", prompt, config)
        assert_all_write(played, tiny_models.generate(family, "float32", prompt, 24), config.methods)
