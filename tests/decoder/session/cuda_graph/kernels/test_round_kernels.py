"""The kernels of a draft find the tokens, keep the candidates, and write the trees of the plain functions, of equally
probable ones the first.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed")

import random
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import pytest

from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.sampling.settings import Sampling, Schedule
from decoder.session.cuda_graph import draft, verify
from decoder.session.cuda_graph.device_state import DeviceState, drafted
from decoder.session.cuda_graph.draft import PLACES, DraftLayout, DraftPart, DraftRule, Grown
from decoder.session.cuda_graph.kernel_trial import Table, kernels
from decoder.session.cuda_graph.kernels import best_tokens, keep_level, pack_tree, verify_tree
from decoder.session.cuda_graph.operators import PLAIN
from decoder.session.cuda_graph.static_shapes import BUCKETS, DEEPEST, Shape, bucket, levels, shape
from decoder.session.cuda_graph.verify import Moves, TreeRows
from decoder.tree import TokenTree
from decoder.tree_rules import Growth, Rules
from tests.decoder.makers import PROMPT, TinyModels, graph_slots
from tests.decoder.session.cuda_graph.laid_out import CHAIN, laid_out, some_choices, some_tree
from tests.decoder.session.cuda_graph.matching import match, with_slots
from tests.decoder.session.cuda_graph.stub_kernels import exactly, tried_kernels
from tests.triton_tools import loads_of

pytestmark = pytest.mark.usefixtures("by_interpreter")
CPU = torch.device("cpu")
BLOCKS = "RANKED", "COMPARED", "SCANNED"


# Best tokens

ROUNDING = 2e-6
"""Largest error of a log-probability of at most this many units, as a share of the largest logit plus 1."""
WIDER = 5
"""Number of columns beyond the vocabulary, as the models' vocabularies may have."""


@pytest.fixture
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(best_tokens, "PART", 16)


SMALL_PARTS = pytest.mark.usefixtures("_small_parts")


def children(
    add_children: Callable[..., None], logits: Tensor, count: int, breadths: Growth[Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Lines of the children that a kernel or the plain function adds, and their log-probabilities."""
    rows, vocabulary = logits.shape
    layout = DraftLayout(Shape(count, (1, rows), best=True, even=breadths is None), vocabulary, CPU)
    paths = torch.linspace(-1, 0, rows, dtype=torch.float64)
    lines, logprobs = torch.zeros((3, rows * count), dtype=torch.int64), torch.zeros(rows * count)
    add_children(logits, layout, breadths, paths, lines, logprobs)
    return lines, logprobs


def check(logits: Tensor, count: int, breadths: Growth[Tensor] | None = None) -> Tensor:
    """Compares the kernels with the plain function, and the tokens with a stable sort; returns the tokens."""
    (lines, logprobs), (right_lines, right) = (
        children(each, logits, count, breadths) for each in (best_tokens.add_children, draft.add_children)
    )
    tokens = lines[0].view(len(logits), count)
    assert torch.equal(tokens, logits.float().sort(dim=1, stable=True, descending=True).indices[:, :count])
    own = logits.log_softmax(-1, torch.float32).gather(1, tokens).flatten()
    ends, right_ends = (each[1].view(torch.float64) for each in (lines, right_lines))
    far = ROUNDING * (1 + float(logits[logits.isfinite()].abs().max()))
    for found, expected in ((logprobs, right), (logprobs, own), (ends, right_ends)):
        assert torch.allclose(found, expected, rtol=0, atol=far, equal_nan=True)
    assert not lines[2].any()
    return tokens


@SMALL_PARTS
@pytest.mark.parametrize(("seed", "dtype"), enumerate([torch.float32, torch.float16, torch.float64] * 2))
def test_rows_of_any_size_have_the_tokens_of_a_stable_sort(seed: int, dtype: torch.dtype) -> None:
    random = torch.Generator().manual_seed(seed)
    rows, vocabulary = (int(torch.randint(1, most, (), generator=random)) for most in (4, 90))
    logits = torch.randn((rows, vocabulary + WIDER), generator=random).to(dtype)[:, :vocabulary]
    check(logits, min(vocabulary, 1 + seed))


@SMALL_PARTS
@pytest.mark.parametrize("count", [1, 3, 8])
def test_of_equal_logits_the_lower_ids_come_first_in_one_part_and_over_several(count: int) -> None:
    random = torch.Generator().manual_seed(count)
    values = torch.tensor([-torch.inf, -1.0, 0.0, -0.0, 2.0])
    check(values[torch.randint(0, len(values), (3, 50), generator=random)], count)
    assert check(torch.zeros(1, 40), count).tolist() == [list(range(count))]


@SMALL_PARTS
@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("place", [0, 19, 39])
def test_the_first_log_probability_of_a_row_with_a_broken_logit_is_none(value: float, place: int) -> None:
    logits = torch.arange(40.0)[None].clone()
    logits[0, place] = value
    for add_children in (best_tokens.add_children, draft.add_children):
        assert children(add_children, logits, 2)[1][0].isnan()


def test_parts_of_the_usual_size_are_merged() -> None:
    check(torch.randn((1, 5000), generator=torch.Generator().manual_seed(2)), 8)


def test_each_row_has_as_many_children_as_its_confidence_asks_for() -> None:
    state = DeviceState(CPU, 600)
    state.begin([1, 2], DynaTree(branching=(1, 2, 3), tau_h=0.8, tau_l=0.4).rule())
    ranks = torch.arange(3) < state.rule.breadths[:, None]
    narrow, middle, wide = torch.where(ranks, state.certain, state.impossible).unbind()
    breadths = Growth(**{**vars(state.rule.logarithmic()), "narrow": narrow, "middle": middle, "wide": wide})
    logits = torch.zeros(4, 30)
    logits[:, 4] = torch.tensor([9.0, 3.5, 1.0, 5.0])
    check(logits, 3, breadths)


# Rows of a level

LEAST = torch.tensor(-1.0, dtype=torch.float64)


def kept(paths: Tensor, width: int, *, best: bool = True, dtype: torch.dtype = torch.float32) -> Tensor:
    """Rows that the kernel keeps; its other results are compared with what its choice means."""
    random, count, columns = torch.Generator().manual_seed(len(paths)), len(paths), 70
    parents = torch.arange(count) // 3
    lines = torch.stack(
        (torch.randint(0, 50000, (count,), generator=random), paths.view(torch.int64), parents, parents)
    )
    bias = torch.randn((count // 3 + 1, columns), generator=random).to(dtype)
    rows, slots = torch.full((4, width + 2), 9), torch.randperm(columns, generator=random)[:width]
    new_bias = keep_level.keep_level(lines[:3], rows[:, 1:-1], LEAST, bias, slots, best=best)
    assert (rows[:, [0, -1]] == 9).all()
    rows = rows[:, 1:-1]
    assert torch.equal(rows[:3], lines[:3, rows[3]])
    assert torch.equal(new_bias, bias[rows[2]].scatter(1, slots[:, None], 0.0))
    plain = torch.arange(width).repeat(4, 1)
    plain_bias = draft.keep_level(lines[:3], plain, LEAST, bias, slots, best=best)
    if len(paths.unique()) == count or not best:
        assert torch.equal(rows, plain)
        assert torch.equal(new_bias, plain_bias)
    return rows[3]


def of_float64(*paths: float) -> Tensor:
    return torch.tensor(paths, dtype=torch.float64)


@pytest.mark.parametrize("best", [True, False])
@pytest.mark.parametrize(
    ("count", "width", "dtype"), [(3, 1, torch.float32), (8, 8, torch.float16), (24, 8, torch.float32),
                                  (70, 33, torch.float16)],
)  # fmt: skip
def test_rows_are_those_of_the_plain_function(count: int, width: int, dtype: torch.dtype, *, best: bool) -> None:
    random = torch.Generator().manual_seed(count)
    kept(-torch.rand(count, dtype=torch.float64, generator=random) * 2, width, best=best, dtype=dtype)


def test_levels_of_several_blocks_are_kept_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*BLOCKS, "COLUMNS"):
        monkeypatch.setattr(keep_level, name, 16)
    kept(-torch.rand(50, dtype=torch.float64, generator=torch.Generator().manual_seed(1)), 9)


def test_each_program_reads_all_candidates_in_as_many_blocks_as_is_said() -> None:
    count = 600
    lines, rows = torch.zeros((3, count), dtype=torch.int64), torch.zeros((4, 64), dtype=torch.int64)
    with loads_of(lines[1]) as sizes:
        keep_level.keep_level(lines, rows, LEAST, torch.zeros((1, 70)), torch.arange(64), best=True)
    ranked, written = -(-count // keep_level.RANKED), 64  # one number a row is read to be written
    assert len(sizes) == ranked * (1 + keep_level.iterations(count)[0]) + written


@pytest.mark.parametrize(
    ("paths", "best", "rows"),
    [
        pytest.param((-1.0, -1.0 + 2**-50, -1.0 - 2**-50, -1.0 + 2**-51), [True], [1, 3], id="in the last bits"),
        pytest.param([-torch.inf] * 7 + [-0.5, -torch.inf, -0.7], [True, False], [0, 1, 7, 9], id="impossible"),
        pytest.param([-1.0, -1.0, *[torch.nan] * 7], [True], [0, 1, 2, 3], id="undefined"),
    ],
)
def test_paths_are_ranked_that_are(paths: list[float], best: list[bool], rows: list[int]) -> None:
    for each in best:
        assert kept(of_float64(*paths), len(rows), best=each).tolist() == rows


def test_of_equally_probable_candidates_the_first_are_kept() -> None:
    paths = of_float64(*[-2.0, -1.0, -1.0, -3.0, -1.0, -2.0] * 12)
    expected = paths.sort(stable=True, descending=True).indices[:40].sort().values
    assert torch.equal(kept(paths, 40), expected)


# Nodes of a tree

VOCABULARY = 40
PLACE = 5
MOST = 1024
"""Largest number of rows of a level in these tests."""
BEST = DynaTree(selection="best", n_max=64, branching=(3, 3, 3), d_max=4, d0=2, rho_stop=0, rho_deep=0)


@pytest.fixture
def _large_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer programs, whose number decides how long the interpreter takes."""
    for name in BLOCKS:
        monkeypatch.setattr(pack_tree, name, 512)
    monkeypatch.setattr(pack_tree, "WRITTEN", 128)


def grown(layout: DraftLayout, seed: int, *, ties: bool = False, own: bool = False) -> Grown:
    """A random draft, in which children are at most as probable as their parents."""
    random = torch.Generator().manual_seed(seed)
    lines, rows = layout.new()
    result = Grown(lines, torch.zeros(lines.shape[1]), torch.zeros(lines.shape[1]) if own else None, rows)
    bias, slots = torch.zeros((MOST, 1)), torch.zeros(MOST, dtype=torch.int64)
    for depth in range(layout.deepest):
        level, children = layout.level(depth), layout.candidates(depth)
        count = children.stop - children.start
        lines[0, children] = torch.randint(0, VOCABULARY, (count,), generator=random)
        result.logprobs[children] = -torch.rand(count, generator=random).mul(4).floor().div(4 if ties else 3.7)
        paths = result.paths[level].repeat_interleave(layout.children) + result.logprobs[children]
        paths[torch.rand(count, generator=random) < 0.1] = -torch.inf
        lines[1, children] = paths.view(torch.int64)
        if depth + 1 < layout.deepest:
            below = rows[:, layout.level(depth + 1)]
            draft.keep_level(lines[:, children], below, 3 * LEAST, bias, slots[: below.shape[1]], best=layout.best)
    if result.own_logprobs is not None:
        result.own_logprobs.copy_(torch.randn(lines.shape[1], generator=random))
    return result


def layout_of(rules: Rules) -> DraftLayout:
    return DraftLayout(shape(rules.rule()), VOCABULARY, CPU)


def written(
    pack: Callable[..., None], rules: Rules, layout: DraftLayout, candidates: Grown, growth: Tensor
) -> DeviceState:
    """The state into which these candidates are packed."""
    state = DeviceState(CPU, 600)
    state.begin([1, 2, 3], rules.rule())
    state.nodes[4:].fill_(7)
    pack(state, layout, DraftRule(growth, None), candidates, torch.arange(PLACE, PLACE + PLACES))
    return state


def packed(rules: Rules, seed: int, *, ties: bool = False, own: bool = False) -> DeviceState:
    """Compares the trees of kernels and plain function; returns the state."""
    layout = layout_of(rules)
    growth = torch.linspace(-4, -1, layout.deepest, dtype=torch.float64) if seed % 2 else layout.every_depth - 9
    given = rules, layout, grown(layout, seed, ties=ties, own=own), growth
    found, right = written(pack_tree.pack_tree, *given), written(draft.pack_tree, *given)
    assert torch.equal(found.nodes, right.nodes)
    assert torch.equal(found.text, right.text)
    return found


@pytest.mark.usefixtures("_large_blocks")
@pytest.mark.parametrize(
    ("rules", "own"),
    [
        (DynaTree(), True),
        (BEST, False),
        (replace(BEST, n_max=3), True),
        (replace(BEST, selection="bfs", n_max=20), False),
        (Fixed(depth=6, branching=2, tau=0.01), True),
        (Linear(5), False),
        (DynaTree(selection="best", n_max=256, branching=(8, 8, 8), d_max=3, d0=2, rho_stop=0, rho_deep=0), True),
    ],
    ids=["bfs", "best", "best of 3", "bfs of 20", "fixed", "linear", "wide"],
)
def test_trees_are_those_of_the_plain_function(rules: Rules, *, own: bool) -> None:
    for seed in range(2):
        packed(rules, seed, own=own)


@pytest.mark.usefixtures("_large_blocks")
@pytest.mark.parametrize("n_max", [5, 30])
def test_of_equally_probable_candidates_the_first_become_nodes(n_max: int) -> None:
    assert len(drafted(packed(replace(BEST, n_max=n_max), 2, ties=True).report.numpy(), 3)) == n_max + 1


def test_blocks_of_the_usual_sizes_make_one_tree() -> None:
    packed(BEST, 3)


def test_each_program_reads_all_nodes_in_as_many_blocks_as_is_said() -> None:
    layout = layout_of(BEST)
    candidates = grown(layout, 1)
    with loads_of(layout.depths) as of_candidates, loads_of(layout.offsets) as of_rows:
        written(pack_tree.pack_tree, BEST, layout, candidates, layout.every_depth - 9)
    count = candidates.lines.shape[1]
    choosing, writing = pack_tree.iterations(count, layout.rows)
    assert len(of_candidates) == -(-count // pack_tree.RANKED) * (1 + choosing)
    scanning = 2 * -(-count // pack_tree.SCANNED)
    assert len(of_rows) == -(-PLACES // pack_tree.WRITTEN) * (1 + writing - scanning)


# Verifications


SLOTS = 512


def side(dtype: torch.dtype) -> DraftPart:
    form = Table(torch.zeros((1, 7), dtype=dtype))
    return DraftPart(form, form.new_store(600), 7, 500)


def check_rows(tree: TokenTree, length: int, dtype: torch.dtype = torch.float32) -> None:
    text = [*range(length - 1), tree.tokens[0]]
    sizes = bucket(len(tree)), levels(bucket(len(tree)), DEEPEST), SLOTS
    target, state = side(dtype), laid_out(tree, text)
    plain, found = (rows(target, state, *sizes) for rows in (verify.tree_rows, verify_tree.tree_rows))
    for name in (field.name for field in fields(TreeRows)):
        right, own = getattr(plain, name), getattr(found, name)
        assert own.dtype == right.dtype, name
        assert torch.equal(own, right), name


def check_path(states: Sequence[DeviceState], choices: list[int], nodes: int) -> Moves | None:
    """Commits by kernel and by plain function; all of both states must be equal. Returns the moves."""
    deepest, target = levels(nodes, DEEPEST), side(torch.float32)
    padded = torch.tensor(choices + [3] * (nodes - len(choices)))
    moves: list[Moves | None] = [
        accept(state, verify.tree_rows(target, state, nodes, deepest, SLOTS), padded, deepest)
        for accept, state in zip((verify_tree.accept_path, verify.accept_path), states, strict=True)
    ]
    for own, plain in zip(*(state._tensors() for state in states), strict=True):
        assert torch.equal(own, plain)
    found, right = moves
    assert (found is None) == (right is None)
    if found and right:
        assert torch.equal(found.target, right.target)
        assert torch.equal(found.draft, right.draft)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("nodes", BUCKETS[:-2])
def test_each_row_sees_the_text_its_ancestors_and_itself(nodes: int, dtype: torch.dtype) -> None:
    check_rows(some_tree(nodes, nodes), 1 + 3 * nodes, dtype)


def test_a_chain_s_rows_see_all_rows_before_them() -> None:
    check_rows(CHAIN, 1)


def test_places_of_several_blocks_are_seen_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_tree, "COLUMNS", 32)
    check_rows(some_tree(3, 6), 27)


@pytest.mark.parametrize("nodes", [1, 2, 3, 7, 16, 33])
def test_the_same_paths_are_accepted_and_committed(nodes: int) -> None:
    for seed in range(4):
        tree = some_tree(seed, nodes)
        states = [laid_out(tree, [5] * seed + [tree.tokens[0]]) for _ in range(2)]
        check_path(states, some_choices(tree, seed), bucket(len(tree)))


def test_a_tree_of_the_largest_size_is_accepted_too() -> None:
    tree = some_tree(1, 200)
    moves = check_path([laid_out(tree, [1, tree.tokens[0]]) for _ in range(2)], some_choices(tree, 5), BUCKETS[-1])
    assert moves
    assert len(moves.target) == DEEPEST


@pytest.mark.parametrize(("window", "history"), [(3, True), (7, False), (63, True)])
def test_history_learns_the_same_bits(window: int, *, history: bool) -> None:
    luck = random.Random(window)
    rules = DynaTree(history=history, window=window, eta_d=1.3, eta_h=0.17, target_acceptance=0.3)
    states = [laid_out(some_tree(0, 2), [1, 2], rules.rule()) for _ in range(2)]
    for number in range(window + 4):
        tree = some_tree(number, 12)
        fresh = laid_out(tree, [1, tree.tokens[0]])
        for state in states:
            state.nodes.copy_(fresh.nodes)
            state.text.copy_(fresh.text)
            state.length.copy_(fresh.length)
        choices = some_choices(tree, number) if luck.random() < 0.8 else [0] * len(tree)
        check_path(states, choices, bucket(len(tree)))
    assert int(states[0].rounds) == window + 4
    moved = float(states[0].rule.growth.d0) != rules.d0
    assert moved == history


# Whole rounds

SMALL = DynaTree(d_max=3, d0=2, branching=(2, 2, 3), window=1)
RULES: dict[str, Rules | None] = {
    "ar": None,
    "linear": Linear(3),
    "bfs": SMALL,
    "best": replace(SMALL, selection="best", n_max=5),
}


@pytest.mark.parametrize(
    ("rules", "dtype", "sampling"),
    [
        ("ar", "float32", Sampling(1.0, 20, 0.9)),
        ("linear", "float64", Sampling()),
        ("bfs", "float32", Sampling(1.0)),
        ("best", "float64", Sampling(1.0, 20, 0.9)),
        ("best", "float32", Sampling()),
    ],
    ids=str,
)
def test_every_round_is_that_of_the_host(tiny_models: TinyModels, rules: str, dtype: str, sampling: Sampling) -> None:
    pair = tiny_models.pair("neox")
    engine = with_slots(tiny_models.loaded(pair, dtype)).sampled(3, Schedule(sampling))
    every: dict[str, Any] = {**kernels()}
    graph_slots(engine).operators = replace(PLAIN, **every)
    rounds = match(engine, tiny_models.prompt_tokens(pair, PROMPT), 6, RULES[rules])
    assert sum(len(outcome.committed) for outcome in rounds) == 6


def test_the_trial_finds_the_kernels_results_equal(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decoder.session.cuda_graph.kernel_trial.relative_time", lambda *_: exactly(0.5))
    engine = with_slots(tiny_models.engine("neox"))
    monkeypatch.setattr("decoder.session.cuda_graph.kernel_trial.layer_kernels", dict)
    assert tried_kernels(engine.pair, graph_slots(engine), [RULES["best"]]).kernels == tuple(kernels())
