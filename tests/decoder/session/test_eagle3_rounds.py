"""With an EAGLE-3 head every round equals the reference's, and every method writes the text of plain decoding."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoder import DynaTree, Fixed, Linear, RunConfig, decode
from decoder.draft import head_text
from decoder.draft.eagle3_passes import Eagle3Passes
from decoder.draft.model_drafter import ModelDrafter
from decoder.events import Round
from decoder.methods.auto import Auto
from decoder.methods.bestfirst import BestFirst
from decoder.sampling.settings import SAMPLING, Sampling
from tests import tiny
from tests.decoder.makers import Played, TinyModels, host_session
from tests.decoder.property_settings import examples
from tests.decoder.session.round_comparison import Score, assert_same_rounds
from tests.eagle3_checkpoints import LAYOUTS, name
from tests.eagle3_reference import Eagle3Oracle
from tests.reference import greedy, simulate
from tests.tiny import FAMILIES

PROMPT = "Once upon a time"
METHODS = ("ar", "linear", "fixed", "bestfirst", "dynatree", "auto")
TEXT, SHORT = 16, 12
BUSHY = DynaTree(branching=(2, 3, 4), rho_stop=0, rho_deep=0, tau=0, d0=4, d_max=5, n_max=60)
USUAL = RunConfig(("dynatree",), TEXT, dynatree=BUSHY)
TREES = {
    "dynatree with history": RunConfig(("dynatree",), TEXT, dynatree=replace(BUSHY, window=1, eta_d=2)),
    "best of a wide tree": RunConfig(("dynatree",), TEXT, dynatree=replace(BUSHY, n_max=14, selection="best")),
    "fixed": RunConfig(("fixed",), TEXT, fixed=Fixed(depth=3, branching=3, tau=0, n_max=30)),
    "linear": RunConfig(("linear",), TEXT, linear=Linear(4)),
}
"""Trees other than `BUSHY`."""


def oracle(tiny_models: TinyModels, pair: str, dtype: str, config: RunConfig) -> Eagle3Oracle:
    saved = tiny_models.pair(pair)
    module = tiny_models.plain(saved.target, dtype)
    return Eagle3Oracle(module, module, tiny.CONTEXT, sampling=config.sampling, seed=config.seed, folder=saved.draft)


def compare(tiny_models: TinyModels, pair: str, dtype: str, config: RunConfig) -> Score:
    """Runs engine and reference on one method, and compares their rounds."""
    saved, (method,) = tiny_models.pair(pair), config.methods
    rounds = [event for event in decode(tiny_models.loaded(saved, dtype), PROMPT, config) if isinstance(event, Round)]
    rules: Any = {"dynatree": config.of(DynaTree), "fixed": config.of(Fixed), "linear": config.of(Linear)}[method]
    prompt = tiny_models.prompt_tokens(saved, PROMPT)
    steps = simulate(oracle(tiny_models, pair, dtype, config), prompt, method, rules, config.max_new_tokens)
    # The engine's rotary angles are in float32, and each drafted level adds to the error of the level before it.
    return assert_same_rounds(rounds, steps)


@pytest.mark.parametrize("tree", TREES)
def test_every_tree_is_the_reference_s(tiny_models: TinyModels, tree: str) -> None:
    assert compare(tiny_models, name("llama", "flat"), "float64", TREES[tree]).rounds


@pytest.mark.parametrize("family", FAMILIES)
def test_heads_of_every_family_of_targets_grow_the_reference_s_trees(tiny_models: TinyModels, family: str) -> None:
    score = compare(tiny_models, name(family, "flat"), "float64", USUAL)
    assert score.rounds
    assert score.nodes > 5 * score.rounds


@pytest.mark.parametrize(
    ("layout", "sampling"),
    [
        ("flat", Sampling(0.7)),
        ("nested", Sampling(1.0, 20, 0.9)),
        ("flat, all tokens", Sampling(1.0, 20, 0.9)),
        ("P-EAGLE", Sampling(0.7)),
    ],
    ids=str,
)
def test_sampled_rounds_are_the_reference_s(tiny_models: TinyModels, layout: str, sampling: Sampling) -> None:
    config = replace(USUAL, seed=3, parameters={**USUAL.parameters, SAMPLING: sampling})
    assert compare(tiny_models, name("llama", layout), "float64", config).rounds


def test_every_layout_grows_the_reference_s_trees(tiny_models: TinyModels) -> None:
    """Some accepted paths are deep, so the states kept for deep paths are tested too."""
    score = Score()
    for layout in LAYOUTS:
        of_layout = compare(tiny_models, name("llama", layout), "float64", USUAL)
        assert of_layout.rounds > 2, layout
        score.add(of_layout)
    assert score.rounds > 10 * score.discarded
    assert score.deep > 3
    assert score.rounds > 60


@examples(12)
@given(
    layout=st.sampled_from([*LAYOUTS]),
    branching=st.sampled_from([(1, 1, 1), (1, 2, 3), (2, 3, 4), (4, 4, 4)]),
    n_max=st.sampled_from([3, 9, 30]),
    d_max=st.integers(2, 6),
    selection=st.sampled_from(["bfs", "best"]),
)
def compare_any(
    tiny_models: TinyModels, score: Score, layout: str, branching: Any, n_max: int, d_max: int, selection: Any
) -> None:
    tree = DynaTree(
        branching=branching, n_max=n_max, d_max=d_max, d0=d_max - 1.0, rho_stop=0.01, tau=0, selection=selection
    )
    score.add(compare(tiny_models, name("llama", layout), "float64", RunConfig(("dynatree",), SHORT, dynatree=tree)))


def test_any_tree_is_the_reference_s(tiny_models: TinyModels) -> None:
    score = Score()
    compare_any(tiny_models, score)
    assert score.rounds > 10 * score.discarded
    assert score.nodes > 3 * score.rounds


@pytest.mark.parametrize("family", FAMILIES)
def test_every_method_writes_what_plain_greedy_decoding_does(tiny_models: TinyModels, family: str) -> None:
    pair, config = name(family, "flat"), RunConfig(METHODS, SHORT, dynatree=BUSHY, bestfirst=BestFirst(12, 4))
    expected = greedy(oracle(tiny_models, pair, "float64", config), prompt_of(tiny_models, pair), SHORT)
    played = Played(list(decode(tiny_models.loaded(tiny_models.pair(pair), "float64"), PROMPT, config)))
    assert {method: played.tokens(method) for method in METHODS} == dict.fromkeys(METHODS, expected)


@pytest.mark.parametrize(
    ("layout", "seed", "sampling"),
    [("flat", 0, Sampling(0.6)), ("nested, layers of Qwen3", 3, Sampling(1.2, 30, 0.9))],
    ids=str,
)
def test_every_method_writes_what_plain_sampling_does(
    tiny_models: TinyModels, layout: str, seed: int, sampling: Sampling
) -> None:
    pair, config = name("llama", layout), RunConfig(METHODS, SHORT, seed, parameters={SAMPLING: sampling})
    expected = greedy(oracle(tiny_models, pair, "float32", config), prompt_of(tiny_models, pair), SHORT)
    played = Played(list(decode(tiny_models.loaded(tiny_models.pair(pair), "float32"), PROMPT, config)))
    assert {method: played.tokens(method) for method in METHODS} == dict.fromkeys(METHODS, expected)


def prompt_of(tiny_models: TinyModels, pair: str) -> list[int]:
    return tiny_models.prompt_tokens(tiny_models.pair(pair), PROMPT)


@pytest.mark.parametrize(("family", "dtype"), [("llama", "bfloat16"), ("gpt2", "bfloat16")])
def test_exact_passes_write_the_bits_of_ar_with_a_head_too(tiny_models: TinyModels, family: str, dtype: str) -> None:
    engine = tiny_models.loaded(tiny_models.pair(name(family, "nested")), dtype).batch_invariant()
    played = Played(list(decode(engine, PROMPT, RunConfig(METHODS, 8, dynatree=BUSHY))))
    assert {tuple(played.tokens(method)) for method in METHODS} == {tuple(played.tokens("ar"))}
    assert played.figures("dynatree").accepted


def test_a_prompt_of_one_token_is_drafted_for_from_the_second_round_on(tiny_models: TinyModels) -> None:
    """The head drafts from the target's states, which do not exist before the target has read a token."""
    engine = tiny_models.loaded(tiny_models.pair(name("llama", "flat")), "float32")
    session = host_session(engine, [7], 12, BUSHY)
    session.prefill()
    sizes = [len(session.step(()).tree) for _ in range(3)]
    assert sizes[0] == 1
    assert min(sizes[1:]) > 1


def test_a_head_that_reads_a_text_in_parts_guesses_as_in_one(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for at_once in (512, 3):
        monkeypatch.setattr(head_text, "AT_ONCE", at_once)
        engine = tiny_models.loaded(tiny_models.pair(name("llama", "nested")), "float64")
        session = host_session(engine, prompt_of(tiny_models, name("llama", "nested")), 12, BUSHY)
        session.prefill()
        found.append([session.step(()).tree.tokens for _ in range(3)])
    assert found[0] == found[1]


def test_states_that_were_read_are_let_go_of(tiny_models: TinyModels) -> None:
    engine = tiny_models.loaded(tiny_models.pair(name("llama", "flat")), "float32")
    session = host_session(engine, prompt_of(tiny_models, name("llama", "flat")), 12, BUSHY)
    session.prefill()
    assert isinstance(session.proposer, ModelDrafter)
    assert isinstance(session.proposer.passes, Eagle3Passes)
    for rows in session.proposer.passes.unread:
        assert rows.untyped_storage().nbytes() == rows.nbytes


def test_auto_measures_what_a_head_costs_and_drafts_where_that_pays(tiny_models: TinyModels) -> None:
    engine = replace(tiny_models.loaded(tiny_models.pair(name("llama", "flat")), "float32"), costs={})
    played = Played(list(decode(engine, PROMPT, RunConfig(("ar", "auto"), 60, auto=Auto()))))
    assert played.tokens("auto") == played.tokens("ar")
    (costs,) = engine.costs.values()
    assert costs.draft.seconds(1) > 0
