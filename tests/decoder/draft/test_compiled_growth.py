"""Trees that the compiled library grows are those of `decoder.draft.growth.grow`, node by node, round after round."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decoder.draft.draft_passes import DraftPasses
from decoder.draft.growth import Children, grow
from decoder.draft.model_drafter import ModelDrafter
from decoder.draft.tree_size.acceptance_model import AcceptanceModel
from decoder.engine import Engine
from decoder.forward.compiled import model as passes
from decoder.forward.compiled.growth import Expectation
from decoder.forward.compiled.library import PassStruct, gumbel_on_host
from decoder.sampling.noise import DraftProbabilities, GumbelNoise
from decoder.sampling.settings import Sampling, Schedule
from decoder.tree import TokenTree
from decoder.tree_rules import Budget, Growth, TreeRule, fixed_growth
from tests.decoder.makers import TinyModels
from tests.decoder.property_settings import examples
from tests.tiny import VOCABULARY

LIMIT = 60
"""Number of tokens of a text."""


class OneByOne(DraftPasses):
    """Passes of a draft whose trees are grown in Python."""

    def grown(self, *_: object, **__: object) -> None:
        return None


RULES = st.builds(
    TreeRule,
    growth=st.builds(
        Growth,
        deepest=st.integers(1, 20),
        stop=st.sampled_from((0.0, 1e-4, 0.02, 0.2)),
        deep=st.sampled_from((0.0, 0.01, 0.3)),
        d0=st.floats(1, 9),
        tau_h=st.floats(0.3, 1),
        tau_l=st.floats(0, 0.3),
        narrow=st.integers(1, 3),
        middle=st.integers(1, 3),
        wide=st.integers(3, 20),
        sharpness=st.sampled_from((1.0, 2.0)),
    ),
    budget=st.builds(
        Budget,
        n_max=st.integers(1, 50),
        least=st.sampled_from((0.0, 0.0, 1e-3)),
        best=st.booleans(),
        beam=st.integers(0, 6),
    ),
)


def probabilities(name: str, seed: int) -> DraftProbabilities | None:
    """The draft's probabilities by name; each call returns equal ones."""
    schedule = Schedule(Sampling(0.0 if name == "greedy schedule" else 0.7))
    if name == "soon greedy":
        schedule.turn(20, Sampling(0.0))
    if name == "top-p":
        schedule = Schedule(Sampling(0.7, top_p=0.9))
    if name == "plain":
        return None
    if name == "own":
        return DraftProbabilities(schedule)
    return GumbelNoise(seed, schedule, VOCABULARY, torch.device("cpu"), gumbel_on_host)


def drafters(engine: Engine, name: str, seed: int, capacity: int = LIMIT + 64) -> tuple[ModelDrafter, ModelDrafter]:
    """A drafter whose trees the library grows, and one whose trees Python grows."""
    pair = engine.pair
    assert pair.draft is not None
    arguments = pair.draft, pair.vocabulary, capacity
    return tuple(ModelDrafter(kind(*arguments), probabilities(name, seed)) for kind in (DraftPasses, OneByOne))  # type: ignore[return-value]


def assert_same_rounds(pair: Sequence[ModelDrafter], rule: TreeRule, seed: int, prompt: int = 5) -> list[TokenTree]:
    """Drafts round after round with both drafters; each round accepts a random path and adds a random token."""
    rng, trees = random.Random(seed), []
    text = [rng.randrange(VOCABULARY) for _ in range(prompt)]
    for drafter in pair:
        drafter.read(text[:-1])
    while len(text) < LIMIT:
        one, other = (drafter.propose(text, rule, LIMIT - len(text)) for drafter in pair)
        assert one == other
        path, node = list[int](), 0
        while (
            children := [child for child, parent in enumerate(one.tree.parents) if parent == node]
        ) and rng.random() < 0.7:
            path.append(node := rng.choice(children))
        for drafter in pair:
            drafter.commit(path)
        text += [*(one.tree.tokens[node] for node in path), rng.randrange(VOCABULARY)]
        trees.append(one.tree)
    return trees


@examples(150)
@given(
    rule=RULES,
    name=st.sampled_from(("plain", "own", "noise", "greedy schedule", "soon greedy", "top-p")),
    family=st.sampled_from(("neox", "llama", "qwen3", "neox-strange")),
    seed=st.integers(0, 1 << 40),
)
def test_trees_of_any_rule_are_the_same(
    tiny_models: TinyModels, rule: TreeRule, name: str, family: str, seed: int
) -> None:
    trees = assert_same_rounds(drafters(tiny_models.engine(family), name, seed), rule, seed)
    assert max(map(len, trees)) > 1


WIDE = TreeRule(fixed_growth(7, 0.0, 3), Budget(n_max=900))
DEEP = TreeRule(fixed_growth(40, 0.0, 1), Budget(n_max=40))
BRANCHING = TreeRule(fixed_growth(2, 0.0, 200), Budget(n_max=250))


@pytest.mark.parametrize(("rule", "nodes", "depth"), [(WIDE, 901, 6), (DEEP, 41, 40), (BRANCHING, 251, 2)])
def test_memory_grows_with_the_tree(tiny_models: TinyModels, rule: TreeRule, nodes: int, depth: int) -> None:
    first, *_ = assert_same_rounds(drafters(tiny_models.engine("llama"), "noise", 7, capacity=LIMIT), rule, 7)
    assert (len(first), max(first.depths)) == (nodes, depth)


def test_threads_share_the_passes_of_many_rows(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, threads = tiny_models.engine("neox"), torch.get_num_threads()
    assert engine.pair.draft is not None
    model = engine.pair.draft.runs_by
    assert isinstance(model, passes.CompiledModel)
    monkeypatch.setattr(passes, "SHARED_FROM", 3 * model.weights)
    shared, run = list[int](), model.team.run

    def counted(job: PassStruct, count: int) -> None:
        shared.append(count)
        run(job, count)

    monkeypatch.setattr(model.team, "run", counted)
    torch.set_num_threads(2)
    try:
        assert_same_rounds(drafters(engine, "noise", 3), replace(WIDE, budget=Budget(n_max=60)), 3)
    finally:
        torch.set_num_threads(threads)
    assert shared.count(2) > 10


def test_rounds_that_python_would_grow_are_few(tiny_models: TinyModels) -> None:
    """Otherwise the tests above would compare Python with itself."""
    drafter, _ = drafters(tiny_models.engine("neox"), "noise", 3)
    drafter.read([1, 2])
    found = drafter.grown([1, 2, 3], DEEP, 9)
    assert found is not None
    assert found.calls == [1] * 8
    assert list(found.rows) == list(range(1, 9))


@given(
    exponent=st.floats(0.1, 8) | st.just(0.0),
    undrafted=st.floats(-40, 20),
    budget=st.just(Budget(40, least=1e-5)) | st.builds(Budget, st.just(20), best=st.just(True), beam=st.integers(0, 5)),
    seed=st.integers(0, 99),
)
@examples(60)
def test_expected_acceptance_grows_the_tree_of_python(
    tiny_models: TinyModels, exponent: float, undrafted: float, budget: Budget, seed: int
) -> None:
    """With an exponent of 0, all children of a node are equally probable."""
    rule = TreeRule(fixed_growth(5, 1e-4, 3), budget)
    text, acceptance = [seed, 3, 5], AcceptanceModel(exponent, undrafted)
    compiled, python = drafters(tiny_models.engine("neox"), "noise", seed)
    for drafter in (compiled, python):
        drafter.read(text[:-1])
    found = compiled.grown(text, rule, 5, Expectation(exponent, undrafted))
    assert found is not None

    def expected(children: Children) -> Children:
        return Children(children.tokens, acceptance.log_shares(children.logprobs), children.draft_logprobs)

    def source(tree: TokenTree, nodes: Sequence[int], growth: Growth[float]) -> list[Children]:
        best = [python.catch_up(text, growth)] if nodes == [0] else python.forward_level(tree, nodes, growth)
        return [*map(expected, best)]

    tree = TokenTree(text[-1:])
    grow(tree, rule, source, 5)
    assert (found.tree.tokens, found.tree.parents) == (tree.tokens, tree.parents)
    assert found.tree.logprobs == pytest.approx(tree.logprobs, abs=1e-9)
    assert found.tree.draft_logprobs == tree.draft_logprobs


def test_a_draft_that_is_not_a_number_loses_its_children(tiny_models: TinyModels) -> None:
    compiled, python = drafters(tiny_models.engine("llama"), "noise", 1)
    for drafter in (compiled, python):
        drafter.read([5])
        assert isinstance(drafter.passes, DraftPasses)
        drafter.passes.cache.store.fill_(math.nan)
    one, other = (drafter.propose([5, 6], DEEP, 9) for drafter in (compiled, python))
    assert one == other
    assert one.tree.lost
    assert len(one.tree) == 1
