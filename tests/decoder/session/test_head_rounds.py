"""With a drafting head every round equals the reference's.

Heads are EAGLE-3 and P-EAGLE heads, DFlash heads, and the target's own MTP layer. The references have no cache: they
compute each round from the whole text.
"""

import copy
from dataclasses import replace
from itertools import cycle, product
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decoder import DynaTree, Fixed, Linear, RunConfig
from decoder.draft import head_passes as head_text
from decoder.draft.head_passes import PROBED, BlockPasses, Eagle3Passes, ParallelPasses
from decoder.draft.model_drafter import ModelDrafter
from decoder.engine import Engine
from decoder.forward.taps import LayerStates
from decoder.heads.dflash import BlockHead
from decoder.heads.eagle3 import Head
from decoder.methods.eagle2 import Eagle2
from decoder.sampling.settings import SAMPLING, Sampling
from decoder.session.host import HostSession
from decoder.tree import TokenTree
from decoder.tree_rules import Rules
from tests import tiny
from tests.decoder import mtp_checkpoints as mtp
from tests.decoder.laws.races import BUSHY
from tests.decoder.laws.races import GUESSES as PROMPT
from tests.decoder.makers import TinyModels, host_session, play
from tests.decoder.mtp_reference import HAS_REFERENCE, MtpOracle
from tests.decoder.property_settings import examples
from tests.decoder.session.round_comparison import Score, assert_same_rounds
from tests.head_reference import BlockOracle, RowOracle
from tests.heads import BLOCK, LAYOUTS, ROWS, name
from tests.reference import simulate
from tests.sampled_reference import SampledOracle
from tests.tiny import FAMILIES

GREEDY = Sampling()
TREES: dict[str, Rules] = {
    "bushy": BUSHY,
    "with history": replace(BUSHY, window=1, eta_d=2),
    "best of a wide tree": replace(BUSHY, n_max=14, selection="best"),
    "fixed": Fixed(depth=3, branching=3, tau=0, n_max=30),
    "linear": Linear(4),
    "linear, sure ones": Linear(4, 0.3),
    "a beam": Eagle2(4, 3, 9),
}
FLAT, BLOCKS = name("llama", "flat"), name("llama", "z-lab")
PARALLEL = name("llama", "P-EAGLE"), name("neox", "P-EAGLE, flat")


def precise(pair: str) -> str:
    """The most precise dtype of a pair; torch has no float64 for experts, which most targets with MTP layers have."""
    return "float32" if pair in mtp.PAIRS and pair != mtp.name("qwen3_5_text") else "float64"


def by_rows(pair: str) -> bool:
    """Whether the pair's head is an EAGLE-3 or P-EAGLE head."""
    return any(pair.endswith(f" {layout}") for layout in ROWS)


def prompt_of(models: TinyModels, pair: str) -> list[int]:
    return models.prompt_tokens(models.pair(pair), PROMPT)


def oracle(models: TinyModels, pair: str, dtype: str, config: RunConfig) -> SampledOracle:
    saved, given = models.pair(pair), dict[str, Any](sampling=config.sampling, seed=config.seed)
    module = models.plain(saved.target, dtype)
    if pair in mtp.PAIRS:
        return MtpOracle(module, module, mtp.CONTEXT, **given)
    kind = RowOracle if by_rows(pair) else BlockOracle
    return kind(module, module, tiny.CONTEXT, folder=saved.draft, **given)


def cases(*found: Any) -> Any:
    """Parameters, whose first is the name of a pair; those that need a reference of transformers may be skipped."""
    lacks = pytest.mark.skipif(not HAS_REFERENCE, reason="this release of transformers has no MtpModel")
    return [pytest.param(*each, marks=[lacks] if each[0] in mtp.PAIRS else []) for each in found]


# Rounds


def compare(models: TinyModels, pair: str, rules: Any, sampling: Sampling = GREEDY, count: int = 12) -> Score:
    """Runs engine and reference on one method, and compares their rounds."""
    method = type(rules).__name__.lower()
    config = RunConfig((method,), count, 3, parameters={SAMPLING: sampling, method: rules})
    rounds = play(models.engine(pair, precise(pair)), config, PROMPT).rounds(method)
    steps = simulate(oracle(models, pair, precise(pair), config), prompt_of(models, pair), method, rules, count)
    return assert_same_rounds(rounds, steps)


SAMPLED = ("flat", "z-lab", "P-EAGLE", "DFlash2", "TreeFlash", "speculators, DSpark", "DeepSpec", "DeepSpec, rnn")
"""Layouts with different passes or corrections."""
CUT = Sampling(1.0, 20, 0.9)


@pytest.mark.parametrize(
    ("pair", "tree", "sampling", "count"),
    cases(
        *((pair, tree, GREEDY, 12) for pair, tree in product((FLAT, BLOCKS, mtp.name("glm4_moe")), list(TREES)[1:])),
        *(
            (name(family, layout), "bushy", GREEDY, 12)
            for family, layout in zip(cycle(FAMILIES), LAYOUTS, strict=False)
        ),
        *((name("llama", layout), "bushy", Sampling(0.7), 12) for layout in SAMPLED),
        *((name("llama", layout), "bushy", CUT, 12) for layout in ("nested", "flat, all tokens")),
        *((pair, "bushy", GREEDY, 16) for pair in mtp.PAIRS),
        *((mtp.name(family), "bushy", Sampling(0.7), 16) for family in ("glm4_moe", "qwen3_next")),
    ),
    ids=str,
)
def test_every_round_is_the_reference_s(
    tiny_models: TinyModels, pair: str, tree: str, sampling: Sampling, count: int
) -> None:
    score = compare(tiny_models, pair, TREES[tree], sampling, count)
    assert score.rounds
    if tree == "bushy" and sampling == GREEDY and count == 12:
        assert score.nodes > 3 * score.rounds


@examples(24)
@given(
    pair=st.sampled_from([name("neox", layout) for layout in LAYOUTS]),
    branching=st.sampled_from([(1, 1, 1), (1, 2, 3), (2, 3, 4), (4, 4, 4)]),
    n_max=st.sampled_from([3, 9, 30]),
    d_max=st.integers(2, 6),
    selection=st.sampled_from(["bfs", "best"]),
)
def compare_any(
    models: TinyModels, score: Score, pair: str, branching: Any, n_max: int, d_max: int, selection: Any
) -> None:
    d_max = d_max if by_rows(pair) else min(d_max, BLOCK - 1)
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


# What is kept from round to round


def begun(engine: Engine, prompt: list[int], rules: Rules | None = BUSHY, limit: int = 60) -> tuple[HostSession, Any]:
    """A session, and the passes of its head."""
    session = host_session(engine, prompt, limit, rules)
    session.prefill()
    return session, session.proposer.passes if isinstance(session.proposer, ModelDrafter) else None


@pytest.mark.parametrize(
    ("pair", "kind"),
    [
        *((pair, Eagle3Passes) for pair in (FLAT, mtp.name("glm4_moe"), mtp.name("qwen3_next"))),
        *((PARALLEL[1], ParallelPasses), (BLOCKS, BlockPasses)),
    ],
)
def test_read_states_are_let_go_of_and_mask_rows_are_not_kept(tiny_models: TinyModels, pair: str, kind: Any) -> None:
    session, passes = begun(tiny_models.engine(pair), prompt_of(tiny_models, pair))
    assert isinstance(passes, kind)
    unread = passes._unread if pair == BLOCKS else passes.unread
    assert all(rows.untyped_storage().nbytes() == rows.nbytes for rows in unread)
    for _ in range(4):
        session.step(())
        unread = passes._unread if pair == BLOCKS else passes.unread
        assert passes.cache.used == passes.cache.length
        assert passes.behind(session.text) == sum(map(len, unread)) + (pair == BLOCKS)


# Passes


@pytest.mark.parametrize("method", ["linear", "fixed", "bestfirst", "dynatree"])
@pytest.mark.parametrize("pair", [PARALLEL[0], name("llama", "DeepSpec")])
def test_one_pass_drafts_a_whole_tree(tiny_models: TinyModels, pair: str, method: str) -> None:
    rounds = play(tiny_models.engine(pair), RunConfig((method,), 24, dynatree=BUSHY), PROMPT).rounds(method)
    assert {event.draft_forwards for event in rounds} == {1}
    assert max(len(event.tokens) for event in rounds) > 3


@pytest.mark.parametrize(
    ("pair", "guesses"),
    [
        (PARALLEL[0], ROWS["P-EAGLE"].guesses),
        (PARALLEL[0], 1),
        (BLOCKS, BLOCK - 1),
        (name("llama", "DeepSpec, rnn"), BLOCK),
    ],
)
def test_a_tree_is_no_deeper_than_a_pass_guesses(tiny_models: TinyModels, pair: str, guesses: int) -> None:
    engine = tiny_models.engine(pair)
    if guesses == 1:
        single: Any = copy.copy(engine.pair.head)
        single.shape = replace(single.shape, guesses=1)
        engine = replace(engine, pair=replace(engine.pair, head=single))
    session, _ = begun(engine, prompt_of(tiny_models, pair), Linear(20))
    assert [max(session.step(()).tree.depths) for _ in range(4)] == [guesses] * 4


@pytest.mark.parametrize(("pair", "first"), [(FLAT, False), (BLOCKS, True)])
def test_after_a_prompt_of_one_token_a_head_that_needs_states_drafts_from_the_second_round_on(
    tiny_models: TinyModels, pair: str, *, first: bool
) -> None:
    """EAGLE-3 drafts from the target's states of tokens before; a block without these attends only to itself."""
    session, _ = begun(tiny_models.engine(pair), [7], BUSHY, 24)
    sizes = [len(session.step(()).tree) for _ in range(3)]
    assert (sizes[0] > 1, min(sizes[1:]) > 1) == (first, True)
    while not session.step(()).finished:
        pass
    plain, _ = begun(tiny_models.engine(pair), [7], None, 24)
    while not plain.step(()).finished:
        pass
    assert session.text == plain.text


@pytest.mark.parametrize("pair", [name("llama", "nested"), PARALLEL[0]])
@torch.inference_mode()
def test_a_text_read_in_parts_gives_the_guesses_of_one_pass(
    tiny_models: TinyModels, pair: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, text, trees, found = tiny_models.engine(pair, "float64"), prompt_of(tiny_models, pair), [], []
    head, target = engine.pair.head, engine.pair.target
    assert isinstance(head, Head)
    for at_once in (512, 3):
        monkeypatch.setattr(head_text, "AT_ONCE", at_once)
        session, _ = begun(engine, text)
        trees.append([session.step(()).tree.tokens for _ in range(3)])
        if pair == PARALLEL[0]:
            states = LayerStates(head.target_layers)
            reader, passes = target.tapped(states), ParallelPasses(head, len(text), states)
            cache = reader.new_cache(len(text))
            reader.read(cache, text[:1])
            passes.read(text[:1])
            reader.read(cache, text[1:-1])
            passes.commit(range(1, len(text) - 2))
            logits, positions = passes.after_latest(text, 7)
            tree = TokenTree([text[-1]])
            deeper, _ = passes.after_level(tree, [tree.add(0, 7, -1.0)])
            assert positions == [*range(len(text) - 6, len(text) + 1)]
            found.append(torch.cat([logits, deeper]))
    assert trees[0] == trees[1]
    assert not found or torch.allclose(found[0], found[1])


def test_guesses_for_tokens_that_were_missed_are_those_of_their_own_rounds(tiny_models: TinyModels) -> None:
    """The head lags several tokens behind the target, as in a probe; a block at each missed token gives its logits."""
    engine = tiny_models.engine(name("llama", "DeepSpec"), "float64")
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


@pytest.mark.parametrize("pair", [FLAT, BLOCKS])
def test_auto_measures_what_a_head_costs_and_drafts_where_that_pays(tiny_models: TinyModels, pair: str) -> None:
    engine = replace(tiny_models.engine(pair), costs={})
    race = play(engine, RunConfig(("ar", "auto"), 60), PROMPT)
    assert race.tokens("auto") == race.tokens("ar")
    (costs,) = engine.costs.values()
    assert costs.draft.seconds(1) > 0
    assert pair == FLAT or costs.draft.seconds(1) < costs.catch_up.seconds(1)


def test_an_mtp_layer_shares_the_target_s_embedding_and_head(tiny_models: TinyModels) -> None:
    pair = tiny_models.engine(mtp.name("glm4_moe")).pair
    head: Any = pair.head
    assert head.embed is pair.target.hf.module.get_input_embeddings()
    assert head.output is pair.target.hf.module.get_output_embeddings()
    assert sum(weight.numel() for weight in head.layer._module.get_input_embeddings().parameters()) == 32
