"""Networks of EAGLE-3, P-EAGLE and DFlash heads equal the references, with caches, tree masks, and fixed shapes; a
DFlash network equals transformers' own.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from decoder.draft.tree_size.cost_profile import timed
from decoder.forward.language_model import LanguageModel
from decoder.heads.dflash import BlockHead, DraftBlock
from decoder.heads.eagle3 import Head, StaticHead, static_head
from decoder.models.heads import head_shape, load_head
from tests import tiny
from tests.head_files import FAVOURITES
from tests.head_reference import BlockCheckpoint, RowCheckpoint
from tests.heads import BLOCKS, HEAD_WIDTH, HEADS, INNER, LAYOUTS, MASK, ROWS, SHARED, WIDTH, target

TEXT = 11
"""Number of tokens before a block; it is larger than every window."""
TOKENS = [5, 99, 7, 250, 12, 7]
PATHS = [[7], [7, 41], [7, 99, 150], [7, 41, 41, 250]]
"""Paths of tokens that begin with the anchor, the block's first token."""


@pytest.fixture(scope="module")
def module() -> Any:
    return target("llama")


@pytest.fixture(scope="module")
def llama(module: Any) -> LanguageModel:
    return LanguageModel.of_module(module, "the-target")


def loaded(folder: Path, llama: LanguageModel, layout: str, dtype: torch.dtype = torch.float64) -> Any:
    """A head of this layout, saved in a folder."""
    saved = str(LAYOUTS[layout].save(folder / "head"))
    shape: Any = head_shape(saved)
    return load_head(saved, shape, llama, dtype)


def states(head: Any) -> Tensor:
    """Random states of the target; for an EAGLE-3 head, of all tokens but the first."""
    generator = torch.Generator().manual_seed(0)
    count = len(TOKENS) if isinstance(head, Head) else TEXT
    return torch.randn((count, head.shape.states * WIDTH), generator=generator, dtype=torch.float64)


def causal(count: int) -> Any:
    return np.tri(count, dtype=np.bool_)


def first_block(head: BlockHead, seen: Tensor, anchor: int = 7) -> DraftBlock:
    """The block after a text with these states."""
    cache = head.new_cache(4)  # too small for the text: it grows
    head.read(cache, seen)
    return head.blocks(cache, [anchor])[0]


def after(head: BlockHead, block: DraftBlock, path: list[int]) -> Tensor:
    """Logits after a path, computed token by token as in a tree."""
    memory = block.memory
    for row, token in zip(block.rows, path, strict=False):
        logits, memory = head.logits(row, [token], memory)
    return logits[0]


def first_guess(head: Head | BlockHead) -> Tensor:
    """Logits of the first guess after a text."""
    if isinstance(head, BlockHead):
        return after(head, first_block(head, states(head)), [7])
    count, cache = len(TOKENS), head.new_cache(8)
    return head.logits(head.forward(cache, TOKENS, head.fused(states(head)), range(count), causal(count)))[-1]


def right_guess(head: Head | BlockHead, folder: Path, module: Any) -> Any:
    """The same logits by the reference; an EAGLE-3 head has its own embedding."""
    seen = np.split(states(head).numpy(), head.shape.states, -1)
    if isinstance(head, BlockHead):
        blocks = BlockCheckpoint(folder, module)
        return blocks.logits(blocks.rows(7, seen), [7])
    rows = RowCheckpoint(folder)
    embedding = rows.weights["embed_tokens.weight"]
    return rows.logits(rows.outputs(embedding[TOKENS], rows.fused(seen)))[-1]


@pytest.mark.parametrize("layout", ["flat, all tokens", "DeepSpec"])
def test_half_precision_is_near_the_reference(tmp_path: Path, module: Any, llama: LanguageModel, layout: str) -> None:
    head = loaded(tmp_path, llama, layout, torch.bfloat16)
    found, expected = first_guess(head), right_guess(head, tmp_path / "head", module)
    assert found.dtype is torch.bfloat16
    assert found.double().numpy() == pytest.approx(expected, abs=0.05 * float(abs(expected).max()))


@pytest.mark.parametrize("layout", ["flat", "speculators"])
def test_tokens_that_a_head_cannot_guess_have_a_logit_and_no_chance(
    tmp_path: Path, llama: LanguageModel, layout: str
) -> None:
    head = loaded(tmp_path, llama, layout, torch.float32)
    logprobs = first_guess(head).log_softmax(-1)
    assert sorted(head.tokens.tolist()) == sorted(FAVOURITES)
    others = [token for token in range(tiny.VOCABULARY) if token not in FAVOURITES]
    assert logprobs.isfinite().all()
    assert logprobs[others].exp().max() == 0
    assert float(logprobs[head.tokens].exp().sum()) == pytest.approx(1)


@pytest.mark.parametrize(("layout", "used"), [("EAGLE-3.1", 5), ("DeepSpec, rnn", 3)])
def test_without_a_target_a_head_runs_as_a_model_does(
    tmp_path: Path, llama: LanguageModel, layout: str, used: int
) -> None:
    model = timed(loaded(tmp_path, llama, layout, torch.float32))
    cache = model.new_cache(8)
    assert model.read(cache, [1, 2, 3]).shape == (tiny.VOCABULARY,)
    assert (cache.length, cache.used) == (3, 3)
    assert model.forward(cache, [4, 5], [3, 3], np.eye(2, dtype=np.bool_)).shape == (2, tiny.VOCABULARY)
    assert (cache.length, cache.used) == (3, used)


# EAGLE-3 and P-EAGLE


@pytest.mark.parametrize("layout", ROWS)
def test_the_rows_of_a_text_are_the_reference_s(tmp_path: Path, llama: LanguageModel, layout: str) -> None:
    head = loaded(tmp_path, llama, layout)
    checkpoint, seen = RowCheckpoint(tmp_path / "head"), states(head)
    hidden = checkpoint.fused(np.split(seen.numpy(), head.shape.states, -1))
    expected = checkpoint.outputs(head.embed_tokens.weight.numpy()[TOKENS], hidden)
    cache, outputs = head.new_cache(len(TOKENS)), []
    for part in (slice(0, 4), slice(4, 6)):  # the second part continues in the cache of the first
        positions = range(len(TOKENS))[part]
        outputs.append(head.forward(cache, TOKENS[part], head.fused(seen[part]), positions, causal(len(positions))))
        cache.keep(positions)
    found = torch.cat(outputs)
    assert found.numpy() == pytest.approx(expected, abs=1e-5)
    assert head.logits(found).numpy() == pytest.approx(checkpoint.logits(expected), abs=1e-4)
    carried = checkpoint.norm(expected, "norm") if checkpoint.flag("norm_output") else expected
    assert head.carried(found).numpy() == pytest.approx(carried, abs=1e-5)


def test_siblings_do_not_see_each_other(tmp_path: Path, llama: LanguageModel) -> None:
    head = loaded(tmp_path, llama, "flat")
    hidden, found = head.fused(states(head)), []
    for tokens in ([7], [12], [7, 12]):
        cache, rows = head.new_cache(8), len(tokens)
        head.forward(cache, TOKENS[:3], hidden[:3], range(3), causal(3))
        cache.keep(range(3))
        found.append(head.forward(cache, tokens, hidden[[3] * rows], [3] * rows, np.eye(rows, dtype=np.bool_)))
    assert torch.cat(found[:2]).numpy() == pytest.approx(found[2].numpy(), abs=1e-12)


GIVEN, DRAFTED = [5, 99, 7, 250, 12], [41, 60, 41]
SLOTS = 64


@pytest.mark.parametrize("layout", [name for name in ROWS if "P-EAGLE" not in name])
@torch.no_grad()
def test_rows_of_text_and_tree_have_the_outputs_of_the_host(tmp_path: Path, llama: LanguageModel, layout: str) -> None:
    head = loaded(tmp_path, llama, layout)
    given_states = torch.randn(len(GIVEN), head.no_states(1).shape[1], generator=torch.Generator().manual_seed(3))
    cache = head.new_cache(SLOTS)
    text = head.forward(cache, GIVEN, head.fused(given_states), range(len(GIVEN)), causal(len(GIVEN)))
    cache.keep(range(len(GIVEN)))
    carried = head.carried(text[-1:]).expand(len(DRAFTED), -1)
    drafted = head.forward(cache, DRAFTED, carried, [len(GIVEN)] * 3, np.eye(3, dtype=np.bool_))

    static = static_head(head)
    assert isinstance(static, StaticHead)
    store = static.new_store(SLOTS)
    # Rows of the tree are not in the slots that follow the text.
    slots = torch.tensor([*range(len(GIVEN)), 11, 9, 20])
    rotation = static.rotation(torch.tensor([*range(len(GIVEN)), *[len(GIVEN)] * 3]))
    bias = torch.full((len(slots), SLOTS), float(torch.finfo(torch.float64).min), dtype=torch.float64)
    for row, slot in enumerate(slots.tolist()):
        bias[row, : min(row + 1, len(GIVEN))] = bias[row, slot] = 0
    given, drafts = slice(len(GIVEN)), slice(len(GIVEN), None)
    ids, more = torch.tensor(GIVEN), torch.tensor(DRAFTED)
    of_text = static.outputs(store, ids, head.fused(given_states), rotation[:, given], slots[given], bias[given])
    of_tree = static.outputs(store, more, carried, rotation[:, drafts], slots[drafts], bias[drafts])
    torch.testing.assert_close(of_text, text, rtol=0, atol=1e-10)
    torch.testing.assert_close(of_tree, drafted, rtol=0, atol=1e-10)
    assert not store[:, :, :, [8, 10, 21]].any()


def test_heads_that_draft_all_levels_in_one_pass_have_no_static_form(tmp_path: Path, llama: LanguageModel) -> None:
    assert static_head(loaded(tmp_path, llama, "P-EAGLE")) is None
    assert static_head(None) is None


# DFlash


@pytest.mark.parametrize("layout", BLOCKS)
def test_the_rows_of_a_block_are_the_reference_s(
    tmp_path: Path, module: Any, llama: LanguageModel, layout: str
) -> None:
    head = loaded(tmp_path, llama, layout)
    checkpoint, seen = BlockCheckpoint(tmp_path / "head", module), states(head)
    expected = checkpoint.rows(PATHS[0][0], np.split(seen.numpy(), head.shape.states, -1))
    cache = head.new_cache(4)  # too small for the text: it grows
    for part in (seen[:4], seen[4:5], seen[5:]):
        head.read(cache, part)
    head.blocks(cache, [12])[0]  # must leave nothing in the cache
    block = head.blocks(cache, [PATHS[0][0]])[0]
    assert (cache.length, cache.used) == (TEXT, TEXT)
    assert len(block.rows) == head.shape.guesses
    for path in PATHS:
        found = after(head, block, path)
        assert found.numpy() == pytest.approx(checkpoint.logits(expected, path), abs=1e-5), path


@pytest.mark.parametrize("layout", BLOCKS)
def test_blocks_of_one_pass_are_those_of_each_alone(tmp_path: Path, llama: LanguageModel, layout: str) -> None:
    """Each block starts after a different text token; it sees neither other blocks nor later text."""
    head = loaded(tmp_path, llama, layout)
    seen, anchors = states(head), [7, 41, 99]
    cache = head.new_cache(4)
    head.read(cache, seen)
    for place, (anchor, block) in enumerate(zip(anchors, head.blocks(cache, anchors), strict=True)):
        alone = first_block(head, seen[: TEXT - 2 + place], anchor)
        path = [anchor, 250, 7]
        assert after(head, block, path).numpy() == pytest.approx(after(head, alone, path).numpy(), abs=1e-9)


@pytest.mark.parametrize("layout", ["DeepSpec, rnn", "speculators, DSpark", "DFlash2", "TreeFlash"])
def test_nodes_of_a_level_are_corrected_as_each_alone(tmp_path: Path, llama: LanguageModel, layout: str) -> None:
    head = loaded(tmp_path, llama, layout)
    block = first_block(head, states(head))
    generator = torch.Generator().manual_seed(1)
    memory = torch.randn((3, block.memory.shape[1]), generator=generator, dtype=torch.float64)
    together, kept = head.logits(block.rows[1], [7, 41, 99], memory)
    for node, token in enumerate((7, 41, 99)):
        alone, its = head.logits(block.rows[1], [token], memory[node : node + 1])
        assert together[node].numpy() == pytest.approx(alone[0].numpy(), abs=1e-12)
        assert kept[node].numpy() == pytest.approx(its[0].numpy(), abs=1e-12)


def test_a_row_that_no_token_corrects_is_computed_once(tmp_path: Path, llama: LanguageModel) -> None:
    head = loaded(tmp_path, llama, "z-lab", torch.float32)
    block = first_block(head, states(head))
    assert len(head.logits(block.rows[1], [7, 41, 99], block.memory.expand(3, -1))[0]) == 1


def test_the_network_is_that_of_transformers(tmp_path: Path, llama: LanguageModel) -> None:
    """Muse Glimmer's assistant is a DFlash network whose weights have other names; it runs without a cache."""
    muse = pytest.importorskip("transformers.models.muse_glimmer_assistant")
    config = muse.MuseGlimmerAssistantConfig(
        hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=2, num_attention_heads=HEADS,
        num_key_value_heads=SHARED, head_dim=HEAD_WIDTH, rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, layer_types=["full_attention"] * 2,
        target_layer_ids=[1, 4, 6], block_size=5, mask_token_id=MASK, attn_implementation="sdpa",
    )  # fmt: skip
    network = muse.MuseGlimmerAssistantModel(config).eval().double()
    head = loaded(tmp_path, llama, "z-lab")
    renamed = {"fc.weight": "encoder.fc.weight", "hidden_norm.weight": "encoder.output_norm_enc.weight"}
    mine = head.state_dict().keys() - {"embed_tokens.weight", "lm_head.weight", "d2t"}
    network.load_state_dict({renamed.get(name, name): rows for name, rows in head.state_dict().items() if name in mine})
    seen, cache = states(head), head.new_cache(TEXT)
    noise = head.embed_tokens.weight[torch.tensor([[7] + [MASK] * 4])]
    for start, end in ((0, 4), (4, 5), (5, TEXT)):
        head.read(cache, seen[start:end])
        found = torch.stack([row.hidden for row in head.blocks(cache, [7])[0].rows])
        with torch.no_grad():
            expected = network(noise, context_hidden_states=seen[None, :end], use_cache=False).last_hidden_state
        assert found.numpy() == pytest.approx(expected[0, 1:].numpy(), abs=1e-5)
