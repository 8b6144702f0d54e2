"""Every kernel compiles for three generations of GPUs, within these numbers of registers and of bytes.

The launches are those of a draft and a verification of 8x64 and of the largest trees, of a truncation, and of layers of
Pythia 2.8B and Llama 8B.
"""

import re
from collections.abc import Callable, Mapping

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

from decoder.forward.families.model import Activation, Heads, LayerNorm, LayerSlots, Pass, RmsNorm, gated_silu
from decoder.forward.linear import Linear
from decoder.methods.dynatree import DynaTree
from decoder.session.cuda_graph import verify
from decoder.session.cuda_graph.device_state import DeviceState
from decoder.session.cuda_graph.draft import DraftLayout, DraftPart, DraftRule, Grown, draft_rule
from decoder.session.cuda_graph.kernel_trial import Table
from decoder.session.cuda_graph.kernels import best_tokens, keep_level, pack_tree, tree_attention, verify_tree
from decoder.session.cuda_graph.kernels.normed_product import normed_product
from decoder.session.cuda_graph.kernels.searched_truncation import SearchedTruncation
from decoder.session.cuda_graph.static_shapes import DEEPEST, Shape
from decoder.system.device import Multiprocessors
from tests.decoder.sampling.truncated_rows import SETTINGS, truncation
from tests.triton_tools import SHARED_LIMITS, Launch, recorded

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")

CPU = torch.device("cpu")
VOCABULARY, SLOTS = 50304, 512
HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32
KIB = 1 << 10
PYTHIA, LLAMA = Heads(32, 1, 80, 20), Heads(8, 4, 128, 128)
MOST: Mapping[str, tuple[int, int]] = {
    "best_tokens.part_best": (64, 64),
    "best_tokens.best_of_parts": (40, 64),
    "keep_level.choose_rows": (64, 2048),
    "keep_level.write_rows": (40, 64),
    "pack_tree.choose_nodes": (96, 2048),
    "pack_tree.write_nodes": (96, 2048),
    "verify_tree.see_ancestors": (40, 2048),
    "verify_tree.commit_path": (128, 4096),
    "searched_truncation.exclude": (128, 2048),
    "tree_attention.attend_by_parts": (128, 41 * KIB),
    "tree_attention.merge_and_activate": (40, 4 * KIB),
}
"""Largest numbers of registers of a thread, and of bytes of shared memory of a block, by kernel, compiled by Triton
3.6 or 3.9."""


def check(launch: Launch, capability: int, registers: int, shared: int, stack: int = 0) -> None:
    """The compiled kernel spills at most `stack` bytes of registers, and needs at most these figures."""
    figures = launch.figures(capability)
    assert figures.stack <= stack, launch.name
    assert figures.registers <= registers, launch.name
    assert figures.shared <= shared < SHARED_LIMITS[capability], launch.name


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


def truncating(dtype: torch.dtype) -> list[Launch]:
    logits = torch.zeros((2, 50277 + 27), dtype=dtype)[:, :50277]
    with recorded() as launches:
        truncation(SearchedTruncation.of, 50277, SETTINGS[0]).excluded(logits)
    return launches


def attending(heads: Heads, rows: int, dtype: torch.dtype, capability: int = 90) -> list[Launch]:
    """The two launches of a layer's attention after a text of 256 tokens, these rows included."""
    store, bias = torch.zeros((1, 2, heads.heads, 280, heads.width), dtype=dtype), torch.zeros((rows, 272), dtype=dtype)
    columns = torch.zeros((rows, 2048 + (heads.groups + 2) * heads.heads * heads.width), dtype=dtype)
    turns = torch.zeros((rows, heads.rotated // 2), dtype=SINGLE if dtype is BRAIN else dtype)
    places = [LayerSlots(store, 0, torch.arange(256 - rows, 256))]
    keys, values = store[0, :, :, :272]
    given = Pass(torch.complex(turns, turns)[:, None, None], places, (keys,), (values,), [bias])
    with recorded() as launches:
        tree_attention.attend(columns, 2048, heads, given, 0, "none", Multiprocessors(132, capability // 10))
    return launches


Norm = type[LayerNorm | RmsNorm]
KINDS: Mapping[str, tuple[Norm, Activation | None]] = {
    "LayerNorm": (LayerNorm, None),
    "RmsNorm": (RmsNorm, None),
    "gated": (RmsNorm, Activation(gated_silu, gated_silu)),
}


def multiplying(kind: str, rows: int, width: int, dtype: torch.dtype) -> Launch:
    """The launch of a norm and a product with `width` columns of weights."""
    norm, activation = KINDS[kind]
    with recorded() as launches:
        linear = Linear(torch.zeros(width, 512), None, dtype)
        normed_product(132, torch.zeros((rows, 512), dtype=dtype), norm((512,), 1e-2), linear, activation)
    (only,) = launches
    return only


LAUNCHES: Mapping[str, Callable[[int], list[Launch]]] = {
    "8x64": lambda _: drafting(8, HALF, even=True, best=True, sampled=False),
    "DynaTree, sampled": lambda _: drafting(3, BRAIN, even=False, best=False, sampled=True),
    "a chain": lambda _: drafting(1, HALF, even=True, best=False, sampled=False),
    "one row": lambda _: verifying(1, HALF),
    "64 rows": lambda _: verifying(64, BRAIN),
    "264 rows": lambda _: verifying(264, HALF),
    "a truncation": lambda _: [launch for dtype in (HALF, BRAIN, SINGLE) for launch in truncating(dtype)],
    "attention of one row": lambda capability: attending(PYTHIA, 1, HALF, capability),
}


@pytest.mark.parametrize("capability", SHARED_LIMITS)
@pytest.mark.parametrize("launches", LAUNCHES)
def test_no_register_is_spilled_and_the_figures_are_small(launches: str, capability: int) -> None:
    for launch in LAUNCHES[launches](capability):
        check(launch, capability, *MOST[launch.name])


def test_every_kernel_has_figures() -> None:
    assert {launch.name for make in LAUNCHES.values() for launch in make(90)} == MOST.keys()


@pytest.mark.parametrize(
    ("capability", "heads", "rows", "dtype", "registers", "shared", "stack"),
    [
        (80, PYTHIA, 64, HALF, 255, 72 * KIB, 0),
        (90, LLAMA, 64, BRAIN, 255, 88 * KIB, 0),
        (90, PYTHIA, 64, SINGLE, 168, 40 * KIB, 0),
        (100, PYTHIA, 64, HALF, 255, 92 * KIB, 0),
        (90, PYTHIA, 8, SINGLE, 128, 48 * KIB, 8),  # nothing by Triton 3.9; by 3.6 two registers, of a thread's 64
    ],
    ids=str,
)
def test_no_large_tile_of_attention_spills_a_register(
    capability: int, heads: Heads, rows: int, dtype: torch.dtype, registers: int, shared: int, stack: int
) -> None:
    attention, _ = attending(heads, rows, dtype, capability)
    check(attention, capability, registers, shared, stack)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("capability", "rows", "width", "dtype", "registers", "shared"),
    [
        (80, 64, 17920, BRAIN, 255, 72 * KIB),
        (90, 64, 6144, BRAIN, 128, 112 * KIB),
        (90, 16, 3072, BRAIN, 64, 60 * KIB),
        (90, 64, 3072, SINGLE, 168, 48 * KIB),
        (100, 64, 17920, BRAIN, 168, 100 * KIB),
    ],
    ids=str,
)
def test_no_norm_and_product_spill_a_register(
    capability: int, rows: int, width: int, dtype: torch.dtype, registers: int, shared: int, kind: str
) -> None:
    check(multiplying(kind, rows, width, dtype), capability, registers, shared)


@pytest.mark.parametrize(("heads", "dtype"), [(PYTHIA, HALF), (LLAMA, BRAIN)], ids=str)
def test_only_the_biases_of_the_pass_s_own_slots_are_loaded_one_by_one(heads: Heads, dtype: torch.dtype) -> None:
    attention, _ = attending(heads, 64, dtype)
    tile, own_step = (attention.arguments[name] for name in ("tile", "own_step"))
    single = re.findall(r"ld\.global\S*\.[bu]16\b", attention.compiled(90).asm["ptx"])
    assert len(single) == tile * own_step // (32 * attention.options["num_warps"])


@pytest.mark.parametrize("capability", SHARED_LIMITS)
def test_no_product_of_history_is_fused_with_a_sum(capability: int) -> None:
    (commit,) = (launch for launch in verifying(64, BRAIN) if launch.name == "verify_tree.commit_path")
    code = commit.compiled(capability).asm["ptx"]
    assert "fma.rn.f64" not in code
    assert "mul.rn.f64" in code or "mul.f64" in code
