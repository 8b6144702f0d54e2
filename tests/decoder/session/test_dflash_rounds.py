"""With a DFlash head every round equals the reference's, and every method writes the text of plain decoding.

The reference (`tests.dflash_reference`) has no cache: it computes each round's block from the whole text.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decoder import DynaTree, Fixed, Linear, RunConfig, decode, load_pair
from decoder.draft.block_passes import PROBED, BlockPasses
from decoder.draft.model_drafter import ModelDrafter
from decoder.engine import Engine
from decoder.events import Round
from decoder.forward.taps import LayerStates
from decoder.heads.dflash import BlockHead
from decoder.methods.auto import Auto
from decoder.methods.bestfirst import BestFirst
from decoder.sampling.settings import SAMPLING, Sampling
from decoder.session.host import HostSession
from tests import tiny
from tests.decoder.makers import Played, TinyModels, host_session
from tests.decoder.property_settings import examples
from tests.decoder.session.made_costs import FREE, priced
from tests.decoder.session.made_costs import WIDE as WIDE_BOUNDS
from tests.decoder.session.round_comparison import Score, assert_same_rounds
from tests.dflash_checkpoints import BLOCK, LAYOUTS, name, save_head
from tests.dflash_reference import DflashOracle
from tests.eagle3_checkpoints import FAVOURITES
from tests.reference import greedy, simulate
from tests.tiny import FAMILIES

PROMPT = "A small model guesses; "
METHODS = ("ar", "linear", "fixed", "bestfirst", "dynatree", "auto")
TEXT, LONG = 12, 200
BUSHY = DynaTree(branching=(2, 3, 4), rho_stop=0, rho_deep=0, tau=0, d0=3, d_max=4, n_max=60)
WIDE = Fixed(depth=3, branching=5, tau=0, n_max=200)
"""A tree so wide that it contains most of the favourite tokens."""
USUAL = RunConfig(("dynatree",), TEXT, dynatree=BUSHY)
TREES = {
    "best of a wide tree": RunConfig(("dynatree",), TEXT, dynatree=replace(BUSHY, n_max=14, selection="best")),
    "fixed": RunConfig(("fixed",), TEXT, fixed=Fixed(depth=3, branching=3, tau=0, n_max=30)),
    "linear": RunConfig(("linear",), TEXT, linear=Linear(4)),
}
"""Trees other than `BUSHY`."""
CORRECTED = ("DFlash2", "TreeFlash", "speculators, DSpark", "DeepSpec", "DeepSpec, rnn")
"""Layouts with different corrections."""


def oracle(tiny_models: TinyModels, pair: str, dtype: str, config: RunConfig) -> DflashOracle:
    saved = tiny_models.pair(pair)
    module = tiny_models.plain(saved.target, dtype)
    return DflashOracle(module, module, tiny.CONTEXT, sampling=config.sampling, seed=config.seed, folder=saved.draft)


def compare(tiny_models: TinyModels, pair: str, config: RunConfig) -> Score:
    """Runs engine and reference on one method, and compares their rounds."""
    saved, (method,) = tiny_models.pair(pair), config.methods
    engine = tiny_models.loaded(saved, "float64")
    rounds = [event for event in decode(engine, PROMPT, config) if isinstance(event, Round)]
    rules: Any = {"dynatree": config.of(DynaTree), "fixed": config.of(Fixed), "linear": config.of(Linear)}[method]
    prompt = tiny_models.prompt_tokens(saved, PROMPT)
    steps = simulate(oracle(tiny_models, pair, "float64", config), prompt, method, rules, config.max_new_tokens)
    return assert_same_rounds(rounds, steps)


@pytest.mark.parametrize("tree", TREES)
def test_every_tree_is_the_reference_s(tiny_models: TinyModels, tree: str) -> None:
    assert compare(tiny_models, name("qwen3", "z-lab"), TREES[tree]).rounds


@pytest.mark.parametrize("family", FAMILIES)
def test_heads_of_every_family_of_targets_grow_the_reference_s_trees(tiny_models: TinyModels, family: str) -> None:
    score = compare(tiny_models, name(family, "z-lab"), USUAL)
    assert score.rounds
    assert score.nodes > 5 * score.rounds


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_grows_the_reference_s_trees(tiny_models: TinyModels, layout: str) -> None:
    score = compare(tiny_models, name("neox", layout), USUAL)
    assert score.rounds > 2 * score.discarded
    assert score.nodes > 3 * score.rounds


@pytest.mark.parametrize("layout", ["z-lab", *CORRECTED])
def test_sampled_rounds_are_the_reference_s(tiny_models: TinyModels, layout: str) -> None:
    sampling = {SAMPLING: Sampling(0.7)}
    config = replace(USUAL, seed=3, parameters={**USUAL.parameters, **sampling})
    assert compare(tiny_models, name("llama", layout), config).rounds


@examples(12)
@given(
    layout=st.sampled_from([*LAYOUTS]),
    branching=st.sampled_from([(1, 1, 1), (1, 2, 3), (2, 3, 4)]),
    n_max=st.sampled_from([3, 9, 30]),
    d_max=st.integers(2, BLOCK - 1),
    selection=st.sampled_from(["bfs", "best"]),
)
def compare_any(
    tiny_models: TinyModels, score: Score, layout: str, branching: Any, n_max: int, d_max: int, selection: Any
) -> None:
    tree = DynaTree(
        branching=branching, n_max=n_max, d_max=d_max, d0=d_max - 1.0, rho_stop=0.01, tau=0, selection=selection
    )
    score.add(compare(tiny_models, name("neox", layout), RunConfig(("dynatree",), TEXT, dynatree=tree)))


def test_any_tree_is_the_reference_s(tiny_models: TinyModels) -> None:
    score = Score()
    compare_any(tiny_models, score)
    assert score.rounds > 5 * score.discarded
    assert score.nodes > 2 * score.rounds


def prompt_of(tiny_models: TinyModels, pair: str) -> list[int]:
    return tiny_models.prompt_tokens(tiny_models.pair(pair), PROMPT)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_method_writes_what_plain_greedy_decoding_does(tiny_models: TinyModels, family: str) -> None:
    pair, config = name(family, "z-lab"), RunConfig(METHODS, TEXT, dynatree=BUSHY, bestfirst=BestFirst(12, 4))
    expected = greedy(oracle(tiny_models, pair, "float64", config), prompt_of(tiny_models, pair), TEXT)
    played = Played(list(decode(tiny_models.loaded(tiny_models.pair(pair), "float64"), PROMPT, config)))
    assert {method: played.tokens(method) for method in METHODS} == dict.fromkeys(METHODS, expected)


@pytest.mark.parametrize("sampling", [Sampling(0.6), Sampling(1.2, 30, 0.9)], ids=str)
def test_every_method_writes_what_plain_sampling_does(tiny_models: TinyModels, sampling: Sampling) -> None:
    pair, config = name("llama", "DeepSpec"), RunConfig(METHODS, TEXT, 3, parameters={SAMPLING: sampling})
    expected = greedy(oracle(tiny_models, pair, "float32", config), prompt_of(tiny_models, pair), TEXT)
    played = Played(list(decode(tiny_models.loaded(tiny_models.pair(pair), "float32"), PROMPT, config)))
    assert {method: played.tokens(method) for method in METHODS} == dict.fromkeys(METHODS, expected)


@pytest.fixture(scope="module")
def long_target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Qwen3 with a context long enough for `LONG` tokens."""
    shape = {"num_hidden_layers": 8, "max_position_embeddings": 512}
    model = tiny.build(tiny.FAMILIES["qwen3"](**shape), seed=1, spread=0.2)
    others = [token for token in range(tiny.VOCABULARY) if token not in FAVOURITES]
    with torch.no_grad():
        model.get_output_embeddings().weight[others] *= 0.05
    return tiny.save(tmp_path_factory.mktemp("long") / "target", model, tiny.train_tokenizer())


@pytest.mark.parametrize(
    ("layout", "temperature"),
    [
        pytest.param("z-lab", 0.0, marks=pytest.mark.soak),
        pytest.param("DFlash2", 0.6, marks=pytest.mark.soak),
        pytest.param("speculators, DSpark", 0.0, marks=pytest.mark.soak),
        ("DeepSpec, rnn", 0.6),
    ],
)
def test_a_long_text_of_every_method_is_that_of_plain_decoding(
    long_target: Path, tmp_path: Path, layout: str, temperature: float
) -> None:
    head = save_head(tmp_path / "head", LAYOUTS[layout])
    engine = load_pair(str(long_target), str(head), device="cpu", dtype="float32")
    parameters = {SAMPLING: Sampling(temperature)}
    tree, best = replace(BUSHY, n_max=12), BestFirst(12, 4)
    config = RunConfig(METHODS, LONG, 1, dynatree=tree, bestfirst=best, parameters=parameters)
    played = Played(list(decode(engine, PROMPT, config)))
    assert len(played.tokens("ar")) == LONG
    assert {method for method in METHODS if played.tokens(method) != played.tokens("ar")} == set()
    assert played.figures("bestfirst").accepted


@pytest.mark.parametrize(("family", "dtype"), [("neox", "float32"), ("qwen3", "bfloat16")])
def test_exact_passes_write_the_bits_of_ar_with_a_head_too(tiny_models: TinyModels, family: str, dtype: str) -> None:
    engine = tiny_models.loaded(tiny_models.pair(name(family, "z-lab")), dtype).batch_invariant()
    played = Played(list(decode(engine, PROMPT, RunConfig(METHODS, 16, dynatree=BUSHY))))
    assert {tuple(played.tokens(method)) for method in METHODS} == {tuple(played.tokens("ar"))}
    assert played.figures("dynatree").accepted


def begun(engine: Engine, prompt: list[int], limit: int, rules: Any = BUSHY) -> tuple[HostSession, BlockPasses]:
    session = host_session(engine, prompt, limit, rules)
    session.prefill()
    assert isinstance(session.proposer, ModelDrafter)
    assert isinstance(session.proposer.passes, BlockPasses)
    return session, session.proposer.passes


@pytest.mark.parametrize(
    ("family", "layout"),
    [("neox", "z-lab"), ("neox", "z-lab, windows"), ("gpt2", "DFlash2"), ("neox", "speculators")],
)
def test_keys_kept_over_rounds_are_those_of_a_fresh_start(tiny_models: TinyModels, family: str, layout: str) -> None:
    """The expected value after every round is that of a new `BlockPasses` that reads the whole text at once."""
    pair = name(family, layout)
    engine = tiny_models.loaded(tiny_models.pair(pair), "float64")
    head, target = engine.pair.head, engine.pair.target
    assert isinstance(head, BlockHead)
    session, passes = begun(engine, prompt_of(tiny_models, pair), 60, WIDE)
    moved = 0
    for _ in range(7):
        moved += session.step(()).accepted not in ([], [1])
        passes.after_text(session.text)
        states = LayerStates(head.target_layers)
        reader = target.tapped(states)
        reader.read(reader.new_cache(len(session.text)), session.text[:-1])
        fresh = BlockPasses(head, len(session.text), states)
        fresh.read(session.text[:-1])
        rows = fresh.cache.length
        assert passes.cache.length == rows == len(session.text) - 1
        kept, expected = (each.cache.store[..., :rows, :].numpy() for each in (passes, fresh))
        assert kept == pytest.approx(expected, abs=1e-9)
        assert fresh.after_text(session.text).numpy() == pytest.approx(
            passes.after_text(session.text).numpy(), abs=1e-9
        )
    assert moved


def test_nothing_is_kept_of_blocks(tiny_models: TinyModels) -> None:
    engine = tiny_models.loaded(tiny_models.pair(name("llama", "z-lab")), "float32")
    session, passes = begun(engine, prompt_of(tiny_models, name("llama", "z-lab")), 40)
    for _ in range(6):
        session.step(())
        assert passes.cache.used == passes.cache.length
        assert passes.behind(session.text) == 1 + sum(len(rows) for rows in passes._unread)


def test_states_that_were_read_are_let_go_of(tiny_models: TinyModels) -> None:
    engine = tiny_models.loaded(tiny_models.pair(name("llama", "z-lab")), "float32")
    _, passes = begun(engine, prompt_of(tiny_models, name("llama", "z-lab")), 12)
    assert all(rows.untyped_storage().nbytes() == rows.nbytes for rows in passes._unread)


@pytest.mark.parametrize(("layout", "guesses"), [("z-lab", BLOCK - 1), ("DeepSpec, rnn", BLOCK)])
def test_a_tree_is_no_deeper_than_the_block(tiny_models: TinyModels, layout: str, guesses: int) -> None:
    pair = name("llama", layout)
    engine = tiny_models.loaded(tiny_models.pair(pair), "float32")
    session, _ = begun(engine, prompt_of(tiny_models, pair), 40, Linear(9))
    assert [max(session.step(()).tree.depths) for _ in range(4)] == [guesses] * 4


def test_all_levels_take_one_pass(tiny_models: TinyModels) -> None:
    engine = tiny_models.loaded(tiny_models.pair(name("llama", "DeepSpec")), "float32")
    session, _ = begun(engine, prompt_of(tiny_models, name("llama", "DeepSpec")), 40)
    assert [session.step(()).draft_forwards for _ in range(4)] == [1] * 4


def test_a_prompt_of_one_token_is_drafted_for_from_the_first_round_on(tiny_models: TinyModels) -> None:
    """Without earlier tokens the block attends only to itself."""
    engine = tiny_models.loaded(tiny_models.pair(name("llama", "z-lab")), "float32")
    texts = []
    for rules in (BUSHY, None):
        session = host_session(engine, [7], 12, rules)
        session.prefill()
        while not session.step(()).finished:
            pass
        texts.append(session.text)
    assert texts[0] == texts[1]


def test_guesses_for_tokens_that_were_missed_are_those_of_their_own_rounds(tiny_models: TinyModels) -> None:
    """The head lags several tokens behind the target, as in a probe; a block at each missed token gives its logits."""
    engine = tiny_models.loaded(tiny_models.pair(name("llama", "DeepSpec")), "float64")
    head, text = engine.pair.head, [*range(20, 40)]
    assert isinstance(head, BlockHead)

    def after(read: int, missed: int) -> BlockPasses:
        """Passes of a head that has read `read` tokens, while the target has read `missed` tokens more."""
        states = LayerStates(head.target_layers)
        reader = engine.pair.target.tapped(states)
        cache, passes = reader.new_cache(len(text)), BlockPasses(head, len(text), states)
        reader.read(cache, text[:read])
        passes.read(text[:read])
        if missed:
            reader.read(cache, text[read : read + missed])
            passes.commit(range(1, missed))
        return passes

    late = after(10, 9)
    assert late.behind(text) == 10
    rows, positions = late.after_latest(text, 32)
    assert positions == [17, 18, 19, 20]
    assert (late.count, len(rows)) == (1, PROBED + 1)
    for row, position in zip(rows, positions, strict=True):
        alone = after(position - 1, 0).after_text(text[:position])[0]
        assert row.numpy() == pytest.approx(alone.numpy(), abs=1e-9)
    assert len(after(18, 1).after_latest(text, 32)[0]) == 2


@pytest.mark.parametrize(("layout", "guesses"), [("speculators", BLOCK - 1), ("DeepSpec, rnn", BLOCK)])
def test_auto_takes_all_levels_of_a_block_where_they_cost_nothing(
    tiny_models: TinyModels, layout: str, guesses: int
) -> None:
    engine = priced(tiny_models.loaded(tiny_models.pair(name("neox", layout)), "float32"), FREE)
    rules = replace(WIDE_BOUNDS, branching=(1, 1, 1), rho_deep=0, lookup=False)
    played = Played(list(decode(engine, PROMPT, RunConfig(("ar", "auto"), 24, auto=rules))))
    assert played.tokens("auto") == played.tokens("ar")
    assert max(len(event.tokens) for event in played.rounds("auto")) == 1 + guesses


def test_auto_measures_what_a_head_costs_and_drafts_where_that_pays(tiny_models: TinyModels) -> None:
    engine = replace(tiny_models.loaded(tiny_models.pair(name("llama", "z-lab")), "float32"), costs={})
    played = Played(list(decode(engine, PROMPT, RunConfig(("ar", "auto"), 60, auto=Auto()))))
    assert played.tokens("auto") == played.tokens("ar")
    (costs,) = engine.costs.values()
    assert 0 < costs.draft.seconds(1) < costs.catch_up.seconds(1)
