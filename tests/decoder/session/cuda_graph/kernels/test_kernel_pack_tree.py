"""The kernels write the same trees as the plain function."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.session.cuda_graph import draft
from decoder.session.cuda_graph.device_state import DeviceState, drafted
from decoder.session.cuda_graph.draft import PLACES, DraftLayout, DraftRule, Grown
from decoder.session.cuda_graph.kernels import pack_tree
from decoder.session.cuda_graph.static_shapes import shape
from decoder.tree_rules import Rules
from tests.triton_tools import loads_of

pytestmark = pytest.mark.usefixtures("by_interpreter")
CPU = torch.device("cpu")
VOCABULARY = 40
PLACE = 5
MOST = 1024
"""Largest number of rows of a level in these tests."""
BEST = DynaTree(selection="best", n_max=64, branching=(3, 3, 3), d_max=4, d0=2, rho_stop=0, rho_deep=0)


@pytest.fixture(autouse=True)
def _large_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer programs, whose number decides how long the interpreter takes."""
    for name in ("RANKED", "COMPARED", "SCANNED"):
        monkeypatch.setattr(pack_tree, name, 512)
    monkeypatch.setattr(pack_tree, "WRITTEN", 128)


def grown(layout: DraftLayout, seed: int, *, ties: bool, own: bool) -> Grown:
    """A random draft, in which children are at most as probable as their parents."""
    random = torch.Generator().manual_seed(seed)
    lines, rows = layout.new()
    result = Grown(lines, torch.zeros(lines.shape[1]), torch.zeros(lines.shape[1]) if own else None, rows)
    nothing = torch.zeros((MOST, 1)), torch.zeros(MOST, dtype=torch.int64)
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
            least = torch.tensor(-3.0, dtype=torch.float64)
            draft.keep_level(
                lines[:, children], below, least, nothing[0], nothing[1][: below.shape[1]], best=layout.best
            )
    if result.own_logprobs is not None:
        result.own_logprobs.copy_(torch.randn(lines.shape[1], generator=random))
    return result


def packed(rules: Rules, seed: int, *, ties: bool = False, own: bool = False) -> DeviceState:
    """Compares the trees of kernels and plain function; returns the state."""
    layout = DraftLayout(shape(rules.rule()), VOCABULARY, CPU)
    candidates = grown(layout, seed, ties=ties, own=own)
    growth = torch.linspace(-4, -1, layout.deepest, dtype=torch.float64) if seed % 2 else layout.every_depth - 9
    places = torch.arange(PLACE, PLACE + PLACES)
    states = [DeviceState(CPU, 600) for _ in range(2)]
    for state, pack in zip(states, (draft.pack_tree, pack_tree.pack_tree), strict=True):
        state.begin([1, 2, 3], rules.rule())
        state.nodes[4:].fill_(7)
        pack(state, layout, DraftRule(growth, None), candidates, places)
    assert torch.equal(states[0].nodes, states[1].nodes)
    assert torch.equal(states[0].text, states[1].text)
    return states[1]


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(
    "rules",
    [
        DynaTree(),
        BEST,
        replace(BEST, n_max=3),
        replace(BEST, selection="bfs", n_max=20),
        Fixed(depth=6, branching=2, tau=0.01),
        Linear(5),
        DynaTree(selection="best", n_max=256, branching=(8, 8, 8), d_max=3, d0=2, rho_stop=0, rho_deep=0),
    ],
    ids=["bfs", "best", "best of 3", "bfs of 20", "fixed", "linear", "wide"],
)
def test_trees_are_those_of_the_plain_function(rules: Rules, *, own: bool) -> None:
    for seed in range(2):
        packed(rules, seed, own=own)


@pytest.mark.parametrize("n_max", [5, 30])
def test_of_equally_probable_candidates_the_first_become_nodes(n_max: int) -> None:
    assert len(drafted(packed(replace(BEST, n_max=n_max), 2, ties=True).report.numpy(), 3)) == n_max + 1


def test_blocks_of_the_usual_sizes_make_one_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    packed(BEST, 3)


def test_each_program_reads_all_candidates_in_as_many_blocks_as_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    layout, state = DraftLayout(shape(BEST.rule()), VOCABULARY, CPU), DeviceState(CPU, 600)
    candidates, places = grown(layout, 1, ties=False, own=False), torch.arange(PLACE, PLACE + PLACES)
    state.begin([1, 2, 3], BEST.rule())
    rule = DraftRule(layout.every_depth - 9, None)
    with loads_of(layout.depths) as of_candidates, loads_of(layout.offsets) as of_rows:
        pack_tree.pack_tree(state, layout, rule, candidates, places)
    count = candidates.lines.shape[1]
    choosing, writing = pack_tree.iterations(count, layout.rows)
    assert len(of_candidates) == -(-count // pack_tree.RANKED) * (1 + choosing)
    scanning = 2 * -(-count // pack_tree.SCANNED)
    assert len(of_rows) == -(-PLACES // pack_tree.WRITTEN) * (1 + writing - scanning)


def test_a_draft_without_nodes_is_its_root_alone() -> None:
    rules = Linear(3)
    layout, state = DraftLayout(shape(rules.rule()), VOCABULARY, CPU), DeviceState(CPU, 600)
    nothing = grown(layout, 1, ties=False, own=False)
    nothing.lines[1].view(torch.float64).fill_(-torch.inf)
    state.begin([1, 2, 3], rules.rule())
    rule = DraftRule(layout.every_depth - 9, None)
    pack_tree.pack_tree(state, layout, rule, nothing, torch.arange(PLACE, PLACE + PLACES))
    assert len(drafted(state.report.numpy(), 3)) == 1
