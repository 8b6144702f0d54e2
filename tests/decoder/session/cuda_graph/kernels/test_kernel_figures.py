"""Every kernel compiles for three generations of GPUs, without spilled registers, within these figures.

The launches are those of a draft and a verification of 8x64 and of the largest trees.
"""

from collections.abc import Callable, Mapping

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

from decoder.methods.dynatree import DynaTree
from decoder.session.cuda_graph import verify
from decoder.session.cuda_graph.device_state import DeviceState
from decoder.session.cuda_graph.draft import DraftLayout, DraftPart, DraftRule, Grown, draft_rule
from decoder.session.cuda_graph.kernel_trial import Table
from decoder.session.cuda_graph.kernels import best_tokens, keep_level, pack_tree, verify_tree
from decoder.session.cuda_graph.static_shapes import DEEPEST, Shape
from tests.triton_tools import SHARED_LIMITS, Launch, recorded

CPU = torch.device("cpu")
VOCABULARY, SLOTS = 50304, 512
MOST: Mapping[str, tuple[int, int]] = {
    "best_tokens.part_best": (64, 64),
    "best_tokens.best_of_parts": (40, 64),
    "keep_level.choose_rows": (64, 2048),
    "keep_level.write_rows": (40, 64),
    "pack_tree.choose_nodes": (96, 2048),
    "pack_tree.write_nodes": (96, 2048),
    "verify_tree.see_ancestors": (40, 2048),
    "verify_tree.commit_path": (128, 4096),
}
"""Largest numbers of registers of a thread, and of bytes of shared memory of a block, by kernel, compiled by Triton
3.6 or 3.9."""


def drafting(children: int, dtype: torch.dtype, *, even: bool, best: bool, sampled: bool) -> list[Launch]:
    """The launches of a draft's last levels and of its tree."""
    layout = DraftLayout(Shape(children, (1, 8, 64, 64), best=best, even=even), VOCABULARY, CPU)
    state = DeviceState(CPU, 1000)
    state.begin([1, 2], DynaTree().rule())
    side = table(dtype)
    rule = draft_rule(side, state, layout)
    lines, rows = layout.new()
    logprobs = torch.zeros(lines.shape[1])
    grown = Grown(lines, logprobs, logprobs.clone() if sampled else None, rows)
    logits, slots = torch.zeros((64, VOCABULARY + 128), dtype=dtype)[:, :VOCABULARY], torch.arange(64)
    level, children_of = layout.level(2), layout.candidates(2)
    paths, candidates, below = grown.paths[level], lines[:, children_of], grown.rows[:, layout.level(3)]
    bias, threshold = torch.zeros((64, SLOTS), dtype=dtype), rule.thresholds[3]
    width = level.stop - level.start
    with recorded() as launches:
        best_tokens.add_children(logits[:width], layout, rule.breadths, paths, candidates, logprobs[children_of])
        keep_level.keep_level(candidates, below, threshold, bias, slots[: below.shape[1]], best=best)
        pack_tree.pack_tree(state, layout, DraftRule(rule.thresholds, None), grown, torch.arange(263))
    return launches


def verifying(nodes: int, dtype: torch.dtype) -> list[Launch]:
    state, deepest = DeviceState(CPU, 1000), min(DEEPEST, nodes - 1)
    state.begin([1, 2], None)
    rows = verify.tree_rows(table(dtype), state, nodes, deepest, SLOTS)
    with recorded() as launches:
        verify_tree.tree_rows(table(dtype), state, nodes, deepest, SLOTS)
        verify_tree.accept_path(state, rows, torch.zeros(nodes, dtype=torch.int64), deepest)
    return launches


def table(dtype: torch.dtype) -> DraftPart:
    form = Table(torch.zeros((1, 7), dtype=dtype))
    return DraftPart(form, form.new_store(8), 7, 500)


LAUNCHES: Mapping[str, Callable[[], list[Launch]]] = {
    "8x64": lambda: drafting(8, torch.float16, even=True, best=True, sampled=False),
    "DynaTree, sampled": lambda: drafting(3, torch.bfloat16, even=False, best=False, sampled=True),
    "a chain": lambda: drafting(1, torch.float16, even=True, best=False, sampled=False),
    "one row": lambda: verifying(1, torch.float16),
    "64 rows": lambda: verifying(64, torch.bfloat16),
    "264 rows": lambda: verifying(264, torch.float16),
}


@pytest.mark.parametrize("architecture", SHARED_LIMITS)
@pytest.mark.parametrize("launches", LAUNCHES)
def test_no_register_is_spilled_and_the_figures_are_small(launches: str, architecture: int) -> None:
    for launch in LAUNCHES[launches]():
        figures = launch.figures(architecture)
        registers, shared = MOST[launch.name]
        assert figures.stack == 0, launch.name
        assert figures.registers <= registers, launch.name
        assert figures.shared <= shared, launch.name


def test_every_kernel_has_figures() -> None:
    assert {launch.name for make in LAUNCHES.values() for launch in make()} == MOST.keys()


@pytest.mark.parametrize("architecture", SHARED_LIMITS)
def test_no_product_of_history_is_fused_with_a_sum(architecture: int) -> None:
    (commit,) = (launch for launch in LAUNCHES["64 rows"]() if launch.name == "verify_tree.commit_path")
    code = commit.compiled(architecture).asm["ptx"]
    assert "fma.rn.f64" not in code
    assert "mul.rn.f64" in code or "mul.f64" in code
