"""With the target's MTP layer every round is the reference's, and every method writes the text of plain decoding."""

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch

from decoder import DynaTree, Fixed, Linear, RunConfig, decode
from decoder.engine import Engine
from decoder.events import Round
from decoder.methods.bestfirst import BestFirst
from decoder.sampling.settings import SAMPLING, Sampling
from tests.decoder.makers import Played, TinyModels, host_session
from tests.decoder.mtp_checkpoints import CONTEXT, FAMILIES, name
from tests.decoder.mtp_reference import HAS_REFERENCE, MtpOracle
from tests.decoder.session.round_comparison import Score, assert_same_rounds
from tests.reference import greedy, simulate

PROMPT = "A small model guesses; "
METHODS = ("ar", "linear", "fixed", "bestfirst", "dynatree", "auto")
BUSHY = DynaTree(branching=(2, 3, 4), rho_stop=0, rho_deep=0, tau=0, d0=4, d_max=5, n_max=40)
COUNT, LONG = 16, 200
"""Numbers of tokens."""
GREEDY = RunConfig(("dynatree",), COUNT, dynatree=BUSHY)
TREES = {
    "best of a wide tree": RunConfig(("dynatree",), COUNT, dynatree=replace(BUSHY, n_max=14, selection="best")),
    "fixed": RunConfig(("fixed",), COUNT, fixed=Fixed(depth=3, branching=3, tau=0, n_max=30)),
    "linear": RunConfig(("linear",), COUNT, linear=Linear(4)),
}
"""Trees other than `BUSHY`."""
needs_reference = pytest.mark.skipif(not HAS_REFERENCE, reason="this release of transformers has no MtpModel")


def engine_of(tiny_models: TinyModels, family: str, dtype: str = "float32") -> Engine:
    return tiny_models.loaded(tiny_models.pair(name(family)), dtype)


def precise(family: str) -> str:
    """The most precise dtype of a family; torch has no float64 for experts."""
    return "float64" if family == "qwen3_5_text" else "float32"


def prompt_of(tiny_models: TinyModels, family: str) -> list[int]:
    return tiny_models.prompt_tokens(tiny_models.pair(name(family)), PROMPT)


def oracle(tiny_models: TinyModels, family: str, config: RunConfig, dtype: str = "float32") -> MtpOracle:
    module = tiny_models.plain(tiny_models.pair(name(family)).target, dtype)
    return MtpOracle(module, module, CONTEXT, sampling=config.sampling, seed=config.seed)


def compare(tiny_models: TinyModels, family: str, config: RunConfig) -> Score:
    """Runs engine and reference on one method, and compares their rounds."""
    (method,) = config.methods
    events = decode(engine_of(tiny_models, family, precise(family)), PROMPT, config)
    rules: Any = {"dynatree": config.of(DynaTree), "fixed": config.of(Fixed), "linear": config.of(Linear)}[method]
    reference, prompt = oracle(tiny_models, family, config, precise(family)), prompt_of(tiny_models, family)
    steps = simulate(reference, prompt, method, rules, config.max_new_tokens)
    return assert_same_rounds([event for event in events if isinstance(event, Round)], steps)


@needs_reference
@pytest.mark.parametrize("family", FAMILIES)
def test_the_layer_of_every_family_grows_the_reference_s_trees(tiny_models: TinyModels, family: str) -> None:
    score = compare(tiny_models, family, GREEDY)
    assert score.rounds
    assert score.nodes > 5 * score.rounds


@needs_reference
@pytest.mark.parametrize("tree", TREES)
def test_every_tree_is_the_reference_s(tiny_models: TinyModels, tree: str) -> None:
    assert compare(tiny_models, "glm4_moe", TREES[tree]).rounds


@needs_reference
@pytest.mark.parametrize("family", ["glm4_moe", "qwen3_next"])
def test_sampled_rounds_are_the_reference_s(tiny_models: TinyModels, family: str) -> None:
    """Some accepted paths are deep, so the states kept for deep paths are tested too."""
    config = replace(GREEDY, seed=3, parameters={**GREEDY.parameters, SAMPLING: Sampling(0.7)})
    assert compare(tiny_models, family, config).deep


def expected_of(tiny_models: TinyModels, family: str, config: RunConfig) -> dict[str, list[int]]:
    """The text of plain decoding for every method."""
    tokens = greedy(oracle(tiny_models, family, config), prompt_of(tiny_models, family), config.max_new_tokens)
    return dict.fromkeys(METHODS, tokens)


@needs_reference
@pytest.mark.parametrize(("family", "temperature"), zip(FAMILIES, itertools.cycle((0.0, 0.8)), strict=False), ids=str)
def test_every_method_writes_what_plain_decoding_does(tiny_models: TinyModels, family: str, temperature: float) -> None:
    config = RunConfig(METHODS, COUNT, 3, dynatree=BUSHY, temperature=temperature)
    played = Played(list(decode(engine_of(tiny_models, family), PROMPT, config)))
    assert {method: played.tokens(method) for method in METHODS} == expected_of(tiny_models, family, config)
    assert played.figures("dynatree").accepted


@needs_reference
def test_a_long_text_of_every_method_is_that_of_plain_decoding(tiny_models: TinyModels) -> None:
    flat = replace(BUSHY, d0=1, d_max=2)
    config = RunConfig(METHODS, LONG, linear=Linear(2), fixed=Fixed(2), bestfirst=BestFirst(8, 2), dynatree=flat)
    played = Played(list(decode(engine_of(tiny_models, "glm4_moe"), PROMPT, config)))
    assert {method: played.tokens(method) for method in METHODS} == expected_of(tiny_models, "glm4_moe", config)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_round_drafts_what_a_fresh_start_drafts(tiny_models: TinyModels, family: str) -> None:
    """States, keys and values kept across rounds give the same draft as a session that reads the whole text again."""
    engine = engine_of(tiny_models, family, precise(family))
    session = host_session(engine, prompt_of(tiny_models, family), 40, BUSHY)
    session.prefill()
    for _ in range(8):
        fresh = host_session(engine, session.text, 40, BUSHY)
        fresh.prefill()
        tree, other = session.step(()).tree, fresh.step(()).tree
        assert (tree.tokens, tree.parents) == (other.tokens, other.parents)
        assert tree.path_logprobs == pytest.approx(other.path_logprobs, abs=1e-4)


def test_the_layer_shares_the_target_s_embedding_and_head(tiny_models: TinyModels) -> None:
    pair = engine_of(tiny_models, "glm4_moe").pair
    head: Any = pair.head
    assert head.embed is pair.target.hf.module.get_input_embeddings()
    assert head.output is pair.target.hf.module.get_output_embeddings()
    assert sum(weight.numel() for weight in head.layer._module.get_input_embeddings().parameters()) == 32


def test_an_exact_run_writes_the_bits_of_ar(tiny_models: TinyModels) -> None:
    engine = tiny_models.loaded(tiny_models.pair(name("glm4_moe")), "bfloat16").batch_invariant()
    played = Played(list(decode(engine, PROMPT, RunConfig(METHODS, 12, dynatree=BUSHY))))
    assert {tuple(played.tokens(method)) for method in METHODS} == {tuple(played.tokens("ar"))}
    assert torch.bfloat16 is engine.pair.target.dtype
