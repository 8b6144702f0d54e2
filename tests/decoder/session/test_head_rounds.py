"""With a drafting head every round equals the reference's, and every method writes the text of plain decoding.

Heads are EAGLE-3 and P-EAGLE heads, DFlash heads, and the target's own MTP layer. The references have no cache: they
compute each round from the whole text.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import cycle, product
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decoder import DynaTree, Fixed, Linear, RunConfig, load_pair
from decoder.draft import head_passes as head_text
from decoder.draft.head_passes import PROBED, BlockPasses, Eagle3Passes, ParallelPasses
from decoder.draft.model_drafter import ModelDrafter
from decoder.engine import Engine
from decoder.forward.taps import LayerStates
from decoder.heads.dflash import BlockHead
from decoder.heads.eagle3 import Head
from decoder.methods.auto import Auto
from decoder.methods.bestfirst import BestFirst
from decoder.sampling.settings import SAMPLING, Sampling
from decoder.session.host import HostSession
from decoder.tree import TokenTree
from decoder.tree_rules import Rules
from tests import dflash_checkpoints as dflash
from tests import eagle3_checkpoints as eagle3
from tests import tiny
from tests.decoder import mtp_checkpoints as mtp
from tests.decoder.makers import TinyModels, host_session, play
from tests.decoder.mtp_reference import HAS_REFERENCE, MtpOracle
from tests.decoder.property_settings import examples
from tests.decoder.session.made_costs import FREE, WIDE, priced
from tests.decoder.session.round_comparison import Score, assert_same_rounds
from tests.dflash_reference import DflashOracle
from tests.eagle3_reference import Eagle3Oracle
from tests.head_files import FAVOURITES
from tests.reference import greedy, simulate
from tests.tiny import FAMILIES

PROMPT = "A small model guesses; "
METHODS = ("ar", "linear", "fixed", "bestfirst", "dynatree", "auto")
GREEDY = Sampling()
BUSHY = DynaTree(branching=(2, 3, 4), rho_stop=0, rho_deep=0, tau=0, d0=3, d_max=4, n_max=60)
TREES: dict[str, Rules] = {
    "bushy": BUSHY,
    "with history": replace(BUSHY, window=1, eta_d=2),
    "best of a wide tree": replace(BUSHY, n_max=14, selection="best"),
    "fixed": Fixed(depth=3, branching=3, tau=0, n_max=30),
    "linear": Linear(4),
}
FLAT, BLOCKS = eagle3.name("llama", "flat"), dflash.name("llama", "z-lab")
PARALLEL = eagle3.name("llama", "P-EAGLE"), eagle3.name("neox", "P-EAGLE, flat")
CORRECTED = ("DFlash2", "TreeFlash", "speculators, DSpark", "DeepSpec", "DeepSpec, rnn")
"""Layouts with different corrections."""


def precise(pair: str) -> str:
    """The most precise dtype of a pair; torch has no float64 for experts, which most targets with MTP layers have."""
    return "float32" if pair in mtp.PAIRS and pair != mtp.name("qwen3_5_text") else "float64"


def prompt_of(models: TinyModels, pair: str) -> list[int]:
    return models.prompt_tokens(models.pair(pair), PROMPT)


def oracle(models: TinyModels, pair: str, dtype: str, config: RunConfig) -> MtpOracle | Eagle3Oracle | DflashOracle:
    saved, given = models.pair(pair), dict[str, Any](sampling=config.sampling, seed=config.seed)
    module = models.plain(saved.target, dtype)
    if pair in mtp.PAIRS:
        return MtpOracle(module, module, mtp.CONTEXT, **given)
    kind = Eagle3Oracle if pair in eagle3.PAIRS else DflashOracle
    return kind(module, module, tiny.CONTEXT, folder=saved.draft, **given)


def cases(*found: Any) -> Any:
    """Parameters, whose first is the name of a pair; those that need a reference of transformers may be skipped."""
    lacks = pytest.mark.skipif(not HAS_REFERENCE, reason="this release of transformers has no MtpModel")
    return [pytest.param(*each, marks=[lacks] if each[0] in mtp.PAIRS else []) for each in found]


# Rounds


@dataclass(frozen=True)
class Tried:
    """Rules and sampling of the rounds of one method."""

    tree: str = "bushy"
    sampling: Sampling = GREEDY
    count: int = 12


USUAL = Tried()


def compare(models: TinyModels, pair: str, rules: Any, sampling: Sampling = GREEDY, count: int = 12) -> Score:
    """Runs engine and reference on one method, and compares their rounds."""
    method = type(rules).__name__.lower()
    config = RunConfig((method,), count, 3, parameters={SAMPLING: sampling, method: rules})
    rounds = play(models.engine(pair, precise(pair)), config, PROMPT).rounds(method)
    steps = simulate(oracle(models, pair, precise(pair), config), prompt_of(models, pair), method, rules, count)
    return assert_same_rounds(rounds, steps)


@pytest.mark.parametrize(
    ("pair", "tried"),
    cases(
        *((pair, Tried(tree)) for pair, tree in product((FLAT, BLOCKS, mtp.name("glm4_moe")), list(TREES)[1:])),
        *(
            (each.name(family, layout), USUAL)
            for each, layout in ((eagle3, "flat"), (dflash, "z-lab"))
            for family in FAMILIES
        ),
        *((eagle3.name("llama", layout), USUAL) for layout in eagle3.LAYOUTS if layout != "flat"),
        *((dflash.name("neox", layout), USUAL) for layout in dflash.LAYOUTS if layout != "z-lab"),
        *((mtp.name(family), Tried(count=16)) for family in mtp.FAMILIES),
        *((eagle3.name("llama", layout), Tried(sampling=Sampling(0.7))) for layout in ("flat", "P-EAGLE")),
        *(
            (eagle3.name("llama", layout), Tried(sampling=Sampling(1.0, 20, 0.9)))
            for layout in ("nested", "flat, all tokens")
        ),
        *((dflash.name("llama", layout), Tried(sampling=Sampling(0.7))) for layout in ("z-lab", *CORRECTED)),
        *((mtp.name(family), Tried(sampling=Sampling(0.7), count=16)) for family in ("glm4_moe", "qwen3_next")),
    ),
    ids=str,
)
def test_every_round_is_the_reference_s(tiny_models: TinyModels, pair: str, tried: Tried) -> None:
    score = compare(tiny_models, pair, TREES[tried.tree], tried.sampling, tried.count)
    assert score.rounds
    if tried == USUAL:
        assert score.nodes > 3 * score.rounds


@examples(24)
@given(
    pair=st.sampled_from([each.name("neox", layout) for each in (eagle3, dflash) for layout in each.LAYOUTS]),
    branching=st.sampled_from([(1, 1, 1), (1, 2, 3), (2, 3, 4), (4, 4, 4)]),
    n_max=st.sampled_from([3, 9, 30]),
    d_max=st.integers(2, 6),
    selection=st.sampled_from(["bfs", "best"]),
)
def compare_any(
    models: TinyModels, score: Score, pair: str, branching: Any, n_max: int, d_max: int, selection: Any
) -> None:
    d_max = min(d_max, dflash.BLOCK - 1) if pair in dflash.PAIRS else d_max
    tree = DynaTree(
        branching=branching, n_max=n_max, d_max=d_max, d0=d_max - 1.0, rho_stop=0.01, tau=0, selection=selection
    )
    score.add(compare(models, pair, tree))


def test_any_tree_is_the_reference_s(tiny_models: TinyModels) -> None:
    """Some accepted paths are deep, so the states kept for deep paths are tested too."""
    score = Score()
    compare_any(tiny_models, score)
    assert score.rounds > 5 * score.discarded
    assert score.nodes > 2 * score.rounds
    assert score.deep > 3


# Texts


@pytest.mark.parametrize(
    ("pair", "sampling", "dtype", "count"),
    cases(
        *((eagle3.name(family, "flat"), GREEDY, "float64", 12) for family in FAMILIES),
        *((dflash.name(family, "z-lab"), GREEDY, "float64", 12) for family in FAMILIES),
        *(
            (mtp.name(family), sampling, "float32", 16)
            for family, sampling in zip(mtp.FAMILIES, cycle((GREEDY, Sampling(0.8))), strict=False)
        ),
        (FLAT, Sampling(0.6), "float32", 12),
        (eagle3.name("llama", "nested, layers of Qwen3"), Sampling(1.2, 30, 0.9), "float32", 12),
        (dflash.name("llama", "DeepSpec"), Sampling(0.6), "float32", 12),
        (dflash.name("llama", "DeepSpec"), Sampling(1.2, 30, 0.9), "float32", 12),
        (PARALLEL[0], GREEDY, "float32", None),
        (PARALLEL[1], Sampling(0.8), "float32", 24),
    ),
    ids=str,
)
def test_every_method_writes_what_plain_decoding_does(
    tiny_models: TinyModels, pair: str, sampling: Sampling, dtype: str, count: int | None
) -> None:
    """The text without a count fills the context."""
    prompt = prompt_of(tiny_models, pair)
    count = count or tiny.CONTEXT - len(prompt) - 8
    config = RunConfig(METHODS, count, 3, dynatree=BUSHY, bestfirst=BestFirst(12, 4), parameters={SAMPLING: sampling})
    race = play(tiny_models.engine(pair, dtype), config, PROMPT)
    expected = greedy(oracle(tiny_models, pair, dtype, config), prompt, count)
    assert {method: race.tokens(method) for method in METHODS} == dict.fromkeys(METHODS, expected)


@pytest.fixture(scope="module")
def long_target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Qwen3 with a context long enough for 200 tokens."""
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
def test_a_long_text_of_blocks_is_that_of_plain_decoding(
    long_target: Path, tmp_path: Path, layout: str, temperature: float
) -> None:
    head = dflash.save_head(tmp_path / "head", dflash.LAYOUTS[layout])
    engine = load_pair(str(long_target), str(head), device="cpu", dtype="float32")
    tree, best = replace(BUSHY, n_max=12), BestFirst(12, 4)
    race = play(engine, RunConfig(METHODS, 200, 1, temperature=temperature, dynatree=tree, bestfirst=best), PROMPT)
    assert len(race.tokens("ar")) == 200
    assert {method for method in METHODS if race.tokens(method) != race.tokens("ar")} == set()
    assert race.figures("bestfirst").accepted


@pytest.mark.skipif(not HAS_REFERENCE, reason="this release of transformers has no MtpModel")
def test_a_long_text_of_an_mtp_layer_is_that_of_plain_decoding(tiny_models: TinyModels) -> None:
    pair, flat = mtp.name("glm4_moe"), replace(BUSHY, d0=1, d_max=2)
    config = RunConfig(METHODS, 200, linear=Linear(2), fixed=Fixed(2), bestfirst=BestFirst(8, 2), dynatree=flat)
    race = play(tiny_models.engine(pair), config, PROMPT)
    expected = greedy(oracle(tiny_models, pair, "float32", config), prompt_of(tiny_models, pair), 200)
    assert {method: race.tokens(method) for method in METHODS} == dict.fromkeys(METHODS, expected)


@pytest.mark.parametrize(
    ("pair", "dtype"),
    [
        (eagle3.name("llama", "nested"), "bfloat16"),
        (eagle3.name("gpt2", "nested"), "bfloat16"),
        (dflash.name("neox", "z-lab"), "float32"),
        (dflash.name("qwen3", "z-lab"), "bfloat16"),
        (mtp.name("glm4_moe"), "bfloat16"),
    ],
)
def test_exact_passes_write_the_bits_of_ar_with_a_head_too(tiny_models: TinyModels, pair: str, dtype: str) -> None:
    engine = tiny_models.engine(pair, dtype).batch_invariant()
    race = play(engine, RunConfig(METHODS, 16, dynatree=BUSHY), PROMPT)
    assert {tuple(race.tokens(method)) for method in METHODS} == {tuple(race.tokens("ar"))}
    assert race.figures("dynatree").accepted
    assert engine.pair.target.dtype is getattr(torch, dtype)


# What is kept from round to round


def begun(engine: Engine, prompt: list[int], rules: Rules | None = BUSHY, limit: int = 60) -> tuple[HostSession, Any]:
    """A session, and the passes of its head."""
    session = host_session(engine, prompt, limit, rules)
    session.prefill()
    return session, session.proposer.passes if isinstance(session.proposer, ModelDrafter) else None


@pytest.mark.parametrize("pair", [*mtp.PAIRS, *PARALLEL])
def test_every_round_drafts_what_a_fresh_start_drafts(tiny_models: TinyModels, pair: str) -> None:
    """States, keys and values kept across rounds give the same draft as a session that reads the whole text again."""
    engine = tiny_models.engine(pair, precise(pair))
    session, _ = begun(engine, prompt_of(tiny_models, pair))
    for _ in range(8):
        fresh, _ = begun(engine, session.text)
        tree, other = session.step(()).tree, fresh.step(()).tree
        assert (tree.tokens, tree.parents) == (other.tokens, other.parents)
        assert tree.path_logprobs == pytest.approx(other.path_logprobs, abs=1e-4)


@pytest.mark.parametrize(
    ("family", "layout"),
    [("neox", "z-lab"), ("neox", "z-lab, windows"), ("gpt2", "DFlash2"), ("neox", "speculators")],
)
def test_keys_kept_over_rounds_are_those_of_a_fresh_start(tiny_models: TinyModels, family: str, layout: str) -> None:
    """The expected value after every round is that of a new `BlockPasses` that reads the whole text at once."""
    pair = dflash.name(family, layout)
    engine = tiny_models.engine(pair, "float64")
    head, target = engine.pair.head, engine.pair.target
    assert isinstance(head, BlockHead)
    wide = Fixed(depth=3, branching=5, tau=0, n_max=200)  # most of the favourite tokens
    session, passes = begun(engine, prompt_of(tiny_models, pair), wide)
    moved = 0
    for _ in range(7):
        moved += session.step(()).accepted not in ([], [1])
        logits = passes.after_text(session.text)
        states = LayerStates(head.target_layers)
        reader = target.tapped(states)
        reader.read(reader.new_cache(len(session.text)), session.text[:-1])
        fresh = BlockPasses(head, len(session.text), states)
        fresh.read(session.text[:-1])
        rows = fresh.cache.length
        assert passes.cache.length == rows == len(session.text) - 1
        kept, expected = (each.cache.store[..., :rows, :].numpy() for each in (passes, fresh))
        assert kept == pytest.approx(expected, abs=1e-9)
        assert fresh.after_text(session.text).numpy() == pytest.approx(logits.numpy(), abs=1e-9)
    assert moved


@pytest.mark.parametrize(("pair", "kind"), [(PARALLEL[1], ParallelPasses), (BLOCKS, BlockPasses)])
def test_nothing_is_kept_of_mask_rows(tiny_models: TinyModels, pair: str, kind: Any) -> None:
    session, passes = begun(tiny_models.engine(pair), prompt_of(tiny_models, pair))
    assert isinstance(passes, kind)
    for _ in range(4):
        session.step(())
        assert passes.cache.used == passes.cache.length
        unread = 1 + sum(map(len, passes._unread)) if pair == BLOCKS else sum(map(len, passes.unread))
        assert passes.behind(session.text) == unread


@pytest.mark.parametrize(("pair", "kind"), [(FLAT, Eagle3Passes), (BLOCKS, BlockPasses)])
def test_states_that_were_read_are_let_go_of(tiny_models: TinyModels, pair: str, kind: Any) -> None:
    _, passes = begun(tiny_models.engine(pair), prompt_of(tiny_models, pair))
    assert isinstance(passes, kind)
    for rows in passes._unread if pair == BLOCKS else passes.unread:
        assert rows.untyped_storage().nbytes() == rows.nbytes


# Passes


@pytest.mark.parametrize("method", ["linear", "fixed", "bestfirst", "dynatree"])
@pytest.mark.parametrize("pair", [PARALLEL[0], dflash.name("llama", "DeepSpec")])
def test_one_pass_drafts_a_whole_tree(tiny_models: TinyModels, pair: str, method: str) -> None:
    rounds = play(tiny_models.engine(pair), RunConfig((method,), 24, dynatree=BUSHY), PROMPT).rounds(method)
    assert {event.draft_forwards for event in rounds} == {1}
    assert max(len(event.tokens) for event in rounds) > 3


@pytest.mark.parametrize(
    ("pair", "guesses"),
    [
        (PARALLEL[0], eagle3.LAYOUTS["P-EAGLE"].guesses),
        (BLOCKS, dflash.BLOCK - 1),
        (dflash.name("llama", "DeepSpec, rnn"), dflash.BLOCK),
    ],
)
def test_a_tree_is_no_deeper_than_a_pass_guesses(tiny_models: TinyModels, pair: str, guesses: int) -> None:
    session, _ = begun(tiny_models.engine(pair), prompt_of(tiny_models, pair), Linear(20))
    assert [max(session.step(()).tree.depths) for _ in range(4)] == [guesses] * 4


def test_a_head_of_one_guess_drafts_one_level(tiny_models: TinyModels) -> None:
    engine = tiny_models.engine(PARALLEL[0])
    head: Any = engine.pair.head
    single = copy.copy(head)
    single.shape = replace(head.shape, guesses=1)
    engine = replace(engine, pair=replace(engine.pair, head=single))
    session, _ = begun(engine, prompt_of(tiny_models, PARALLEL[0]), Linear(20))
    assert {len(session.step(()).tree) for _ in range(8)} == {2}


def test_after_a_prompt_of_one_token_an_eagle3_head_drafts_from_the_second_round_on(tiny_models: TinyModels) -> None:
    """The head drafts from the target's states, which do not exist before the target has read a token."""
    session, _ = begun(tiny_models.engine(FLAT), [7])
    sizes = [len(session.step(()).tree) for _ in range(3)]
    assert sizes[0] == 1
    assert min(sizes[1:]) > 1


def test_after_a_prompt_of_one_token_blocks_are_drafted_from_the_first_round_on(tiny_models: TinyModels) -> None:
    """Without earlier tokens the block attends only to itself."""
    texts = []
    for rules in (BUSHY, None):
        session, _ = begun(tiny_models.engine(BLOCKS), [7], rules, 12)
        while not session.step(()).finished:
            pass
        texts.append(session.text)
    assert texts[0] == texts[1]


@contextmanager
def in_parts(at_once: int) -> Iterator[None]:
    """Heads read so many tokens at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(head_text, "AT_ONCE", at_once)
        yield


def test_a_head_that_reads_a_text_in_parts_guesses_as_in_one(tiny_models: TinyModels) -> None:
    pair, found = eagle3.name("llama", "nested"), []
    for at_once in (512, 3):
        with in_parts(at_once):
            session, _ = begun(tiny_models.engine(pair, "float64"), prompt_of(tiny_models, pair))
            found.append([session.step(()).tree.tokens for _ in range(3)])
    assert found[0] == found[1]


@torch.inference_mode()
def test_a_text_read_in_parts_gives_the_guesses_of_one_pass(tiny_models: TinyModels) -> None:
    pair, text = tiny_models.engine(PARALLEL[0], "float64").pair, prompt_of(tiny_models, PARALLEL[0])
    assert isinstance(pair.head, Head)
    found = []
    for at_once in (512, 3):
        with in_parts(at_once):
            states = LayerStates(pair.head.target_layers)
            target, passes = pair.target.tapped(states), ParallelPasses(pair.head, len(text), states)
            cache = target.new_cache(len(text))
            target.read(cache, text[:1])
            passes.read(text[:1])
            target.read(cache, text[1:-1])
            passes.commit(range(1, len(text) - 2))
            logits, positions = passes.after_latest(text, 7)
            tree = TokenTree([text[-1]])
            deeper, _ = passes.after_level(tree, [tree.add(0, 7, -1.0)])
        assert positions == [*range(len(text) - 6, len(text) + 1)]
        found.append(torch.cat([logits, deeper]))
    assert torch.allclose(found[0], found[1])


def test_guesses_for_tokens_that_were_missed_are_those_of_their_own_rounds(tiny_models: TinyModels) -> None:
    """The head lags several tokens behind the target, as in a probe; a block at each missed token gives its logits."""
    engine = tiny_models.engine(dflash.name("llama", "DeepSpec"), "float64")
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


# Costs


@pytest.mark.parametrize(("layout", "guesses"), [("speculators", dflash.BLOCK - 1), ("DeepSpec, rnn", dflash.BLOCK)])
def test_auto_takes_all_levels_of_a_block_where_they_cost_nothing(
    tiny_models: TinyModels, layout: str, guesses: int
) -> None:
    engine = priced(tiny_models.engine(dflash.name("neox", layout)), FREE)
    rules = replace(WIDE, branching=(1, 1, 1), rho_deep=0, lookup=False)
    race = play(engine, RunConfig(("ar", "auto"), 24, auto=rules), PROMPT)
    assert race.tokens("auto") == race.tokens("ar")
    assert max(len(event.tokens) for event in race.rounds("auto")) == 1 + guesses


@pytest.mark.parametrize("pair", [FLAT, BLOCKS])
def test_auto_measures_what_a_head_costs_and_drafts_where_that_pays(tiny_models: TinyModels, pair: str) -> None:
    engine = replace(tiny_models.engine(pair), costs={})
    race = play(engine, RunConfig(("ar", "auto"), 60, auto=Auto()), PROMPT)
    assert race.tokens("auto") == race.tokens("ar")
    (costs,) = engine.costs.values()
    assert costs.draft.seconds(1) > 0
    if pair == BLOCKS:
        assert costs.draft.seconds(1) < costs.catch_up.seconds(1)


def test_an_mtp_layer_shares_the_target_s_embedding_and_head(tiny_models: TinyModels) -> None:
    pair = tiny_models.engine(mtp.name("glm4_moe")).pair
    head: Any = pair.head
    assert head.embed is pair.target.hf.module.get_input_embeddings()
    assert head.output is pair.target.hf.module.get_output_embeddings()
    assert sum(weight.numel() for weight in head.layer._module.get_input_embeddings().parameters()) == 32
