"""The network of a DFlash head equals a slow reference and transformers' own DFlash network.

The slow reference is `tests.dflash_reference`, which computes the whole text without a cache.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from decoder.forward.language_model import LanguageModel
from decoder.heads.dflash import BlockHead, DraftBlock
from decoder.heads.timed import timed
from decoder.models.dflash_config import block_shape
from decoder.models.heads import load_head as load_block_head
from tests import tiny
from tests.dflash_checkpoints import HEAD_WIDTH, HEADS, INNER, LAYOUTS, MASK, SHARED, Layout, save_head, states
from tests.dflash_reference import Checkpoint
from tests.eagle3_checkpoints import FAVOURITES, WIDTH, target

TEXT = 11
"""Number of tokens before the block; it is larger than every window."""
PATHS = [[7], [7, 41], [7, 99, 150], [7, 41, 41, 250]]
"""Paths of tokens that begin with the anchor, the block's first token."""


@pytest.fixture(scope="module")
def module() -> Any:
    return target("llama")


@pytest.fixture(scope="module")
def llama(module: Any) -> LanguageModel:
    return LanguageModel.of_module(module, "the-target")


def loaded(folder: Path, llama: LanguageModel, dtype: torch.dtype) -> BlockHead:
    shape = block_shape(str(folder))
    assert shape is not None
    return load_block_head(str(folder), shape, llama, dtype)


def drawn_states(layout: Layout, count: int = TEXT) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn((count, states(layout) * WIDTH), generator=generator, dtype=torch.float64)


def parts(seen: Tensor, layout: Layout) -> list[NDArray[np.float64]]:
    """The concatenated states split by layer, as the reference takes them."""
    return np.split(seen.numpy(), states(layout), -1)


def after(head: BlockHead, block: DraftBlock, path: list[int]) -> Tensor:
    """Logits after a path, computed token by token as in a tree."""
    memory = block.memory
    for row, token in zip(block.rows, path, strict=False):
        logits, memory = head.logits(row, [token], memory)
    return logits[0]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_rows_of_a_block_are_the_reference_s(
    tmp_path: Path, module: Any, llama: LanguageModel, layout: str
) -> None:
    folder = save_head(tmp_path / "head", LAYOUTS[layout])
    head, checkpoint = loaded(folder, llama, torch.float64), Checkpoint(folder, module)
    seen = drawn_states(LAYOUTS[layout])
    expected = checkpoint.rows(PATHS[0][0], parts(seen, LAYOUTS[layout]))
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


@pytest.mark.parametrize("layout", LAYOUTS)
def test_blocks_of_one_pass_are_those_of_each_alone(tmp_path: Path, llama: LanguageModel, layout: str) -> None:
    """Each block starts after a different text token; it sees neither other blocks nor later text."""
    head = loaded(save_head(tmp_path / "head", LAYOUTS[layout]), llama, torch.float64)
    seen, anchors = drawn_states(LAYOUTS[layout]), [7, 41, 99]
    cache = head.new_cache(4)
    head.read(cache, seen)
    together = head.blocks(cache, anchors)
    for place, (anchor, block) in enumerate(zip(anchors, together, strict=True)):
        shorter = head.new_cache(TEXT)
        head.read(shorter, seen[: TEXT - 2 + place])
        (alone,) = head.blocks(shorter, [anchor])
        path = [anchor, 250, 7]
        assert after(head, block, path).numpy() == pytest.approx(after(head, alone, path).numpy(), abs=1e-9)


@pytest.mark.parametrize("layout", ["DeepSpec, rnn", "speculators, DSpark", "DFlash2", "TreeFlash"])
def test_nodes_of_a_level_are_corrected_as_each_alone(tmp_path: Path, llama: LanguageModel, layout: str) -> None:
    head = loaded(save_head(tmp_path / "head", LAYOUTS[layout]), llama, torch.float64)
    cache = head.new_cache(TEXT)
    head.read(cache, drawn_states(LAYOUTS[layout]))
    block = head.blocks(cache, [7])[0]
    generator = torch.Generator().manual_seed(1)
    memory = torch.randn((3, block.memory.shape[1]), generator=generator, dtype=torch.float64)
    together, kept = head.logits(block.rows[1], [7, 41, 99], memory)
    for node, token in enumerate((7, 41, 99)):
        alone, its = head.logits(block.rows[1], [token], memory[node : node + 1])
        assert together[node].numpy() == pytest.approx(alone[0].numpy(), abs=1e-12)
        assert kept[node].numpy() == pytest.approx(its[0].numpy(), abs=1e-12)


def test_a_row_that_no_token_corrects_is_computed_once(tmp_path: Path, llama: LanguageModel) -> None:
    head = loaded(save_head(tmp_path / "head", LAYOUTS["z-lab"]), llama, torch.float32)
    cache = head.new_cache(TEXT)
    head.read(cache, drawn_states(LAYOUTS["z-lab"]))
    block = head.blocks(cache, [7])[0]
    assert len(head.logits(block.rows[1], [7, 41, 99], block.memory.expand(3, -1))[0]) == 1


def test_tokens_that_a_head_cannot_guess_have_a_logit_and_no_chance(tmp_path: Path, llama: LanguageModel) -> None:
    head = loaded(save_head(tmp_path / "head", LAYOUTS["speculators"]), llama, torch.float32)
    cache = head.new_cache(TEXT)
    head.read(cache, drawn_states(LAYOUTS["speculators"]))
    logprobs = after(head, head.blocks(cache, [7])[0], [7]).log_softmax(-1)
    assert head.tokens is not None
    assert sorted(head.tokens.tolist()) == sorted(FAVOURITES)
    others = [token for token in range(tiny.VOCABULARY) if token not in FAVOURITES]
    assert logprobs.isfinite().all()
    assert logprobs[others].exp().max() == 0


def test_half_precision_is_near_the_reference(tmp_path: Path, module: Any, llama: LanguageModel) -> None:
    layout = LAYOUTS["DeepSpec"]
    folder = save_head(tmp_path / "head", layout)
    head, checkpoint = loaded(folder, llama, torch.bfloat16), Checkpoint(folder, module)
    seen = drawn_states(layout)
    rows = checkpoint.rows(7, parts(seen, layout))
    cache = head.new_cache(TEXT)
    head.read(cache, seen)
    found, expected = after(head, head.blocks(cache, [7])[0], [7]), checkpoint.logits(rows, [7])
    assert found.dtype is torch.bfloat16
    assert found.double().numpy() == pytest.approx(expected, abs=0.05 * float(abs(expected).max()))


def test_without_a_target_a_head_runs_as_a_model_does(tmp_path: Path, llama: LanguageModel) -> None:
    head = loaded(save_head(tmp_path / "head", LAYOUTS["DeepSpec, rnn"]), llama, torch.float32)
    model = timed(head)
    cache = model.new_cache(8)
    assert model.read(cache, [1, 2, 3]).shape == (tiny.VOCABULARY,)
    assert (cache.length, cache.used) == (3, 3)
    assert model.forward(cache, [4, 5], [3, 3], torch.eye(2).bool().numpy()).shape == (2, tiny.VOCABULARY)
    assert (cache.length, cache.used) == (3, 3)


def test_the_network_is_that_of_transformers(tmp_path: Path, llama: LanguageModel) -> None:
    """Muse Glimmer's assistant is a DFlash network whose weights have other names; it runs without a cache."""
    muse = pytest.importorskip("transformers.models.muse_glimmer_assistant")
    layout = Layout()
    config = muse.MuseGlimmerAssistantConfig(
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=SHARED,
        head_dim=HEAD_WIDTH,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        layer_types=["full_attention"] * 2,
        target_layer_ids=[1, 4, 6],
        block_size=5,
        mask_token_id=MASK,
        attn_implementation="sdpa",
    )
    network = muse.MuseGlimmerAssistantModel(config).eval().double()
    head = loaded(save_head(tmp_path / "head", layout), llama, torch.float64)
    renamed = {"fc.weight": "encoder.fc.weight", "hidden_norm.weight": "encoder.output_norm_enc.weight"}
    mine = head.state_dict().keys() - {"embed_tokens.weight", "lm_head.weight", "d2t"}
    network.load_state_dict({renamed.get(name, name): rows for name, rows in head.state_dict().items() if name in mine})
    seen, cache = drawn_states(layout), head.new_cache(TEXT)
    noise = head.embed_tokens.weight[torch.tensor([[7] + [MASK] * 4])]
    for start, end in ((0, 4), (4, 5), (5, TEXT)):
        head.read(cache, seen[start:end])
        found = torch.stack([row.hidden for row in head.blocks(cache, [7])[0].rows])
        with torch.no_grad():
            expected = network(noise, context_hidden_states=seen[None, :end], use_cache=False).last_hidden_state
        assert found.numpy() == pytest.approx(expected[0, 1:].numpy(), abs=1e-5)
