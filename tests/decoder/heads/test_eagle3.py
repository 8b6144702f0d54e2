"""The network of an EAGLE-3 head equals the reference, with a cache, a tree mask, and in passes of fixed shape."""

from pathlib import Path

import numpy as np
import pytest
import torch

from decoder.forward.language_model import LanguageModel
from decoder.heads.eagle3 import Head, StaticHead, static_head
from decoder.heads.timed import timed
from decoder.models.head_config import head_shape
from decoder.models.heads import load_head
from tests import tiny
from tests.eagle3_checkpoints import LAYOUTS, WIDTH, save_head, target
from tests.eagle3_reference import Checkpoint

TOKENS = [5, 99, 7, 250, 12, 7]


@pytest.fixture(scope="module")
def llama() -> LanguageModel:
    return LanguageModel.of_module(target("llama"), "the-target")


def loaded(home: Path, llama: LanguageModel, layout: str, dtype: torch.dtype) -> tuple[Head, Checkpoint]:
    folder = save_head(home / "head", LAYOUTS[layout])
    shape = head_shape(str(folder))
    assert shape is not None
    return load_head(str(folder), shape, llama, dtype), Checkpoint(folder)


def states(head: Head) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn((len(TOKENS), head.shape.states * WIDTH), generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_rows_of_a_text_are_the_reference_s(tmp_path: Path, llama: LanguageModel, layout: str) -> None:
    head, checkpoint = loaded(tmp_path, llama, layout, torch.float64)
    seen = states(head)
    hidden = checkpoint.fused(np.split(seen.numpy(), head.shape.states, -1))
    expected = checkpoint.outputs(head.embed_tokens.weight.numpy()[TOKENS], hidden)
    cache, outputs = head.new_cache(len(TOKENS)), []
    for part in (slice(0, 4), slice(4, 6)):  # the second part continues in the cache of the first
        positions = range(len(TOKENS))[part]
        causal = np.tri(len(positions), dtype=np.bool_)
        outputs.append(head.forward(cache, TOKENS[part], head.fused(seen[part]), positions, causal))
        cache.keep(positions)
    found = torch.cat(outputs)
    assert found.numpy() == pytest.approx(expected, abs=1e-5)
    assert head.logits(found).numpy() == pytest.approx(checkpoint.logits(expected), abs=1e-4)
    carried = checkpoint.norm(expected, "norm") if checkpoint.flag("norm_output") else expected
    assert head.carried(found).numpy() == pytest.approx(carried, abs=1e-5)


def test_siblings_do_not_see_each_other(tmp_path: Path, llama: LanguageModel) -> None:
    head, _ = loaded(tmp_path, llama, "flat", torch.float64)
    hidden = head.fused(states(head))
    alone = []
    for token in (7, 12):
        cache = head.new_cache(8)
        head.forward(cache, TOKENS[:3], hidden[:3], range(3), np.tri(3, dtype=np.bool_))
        cache.keep(range(3))
        alone.append(head.forward(cache, [token], hidden[3:4], [3], np.ones((1, 1), dtype=np.bool_)))
    cache = head.new_cache(8)
    head.forward(cache, TOKENS[:3], hidden[:3], range(3), np.tri(3, dtype=np.bool_))
    cache.keep(range(3))
    together = head.forward(cache, [7, 12], hidden[[3, 3]], [3, 3], np.eye(2, dtype=np.bool_))
    assert torch.cat(alone).numpy() == pytest.approx(together.numpy(), abs=1e-12)


def test_tokens_that_a_head_cannot_guess_have_a_logit_and_no_chance(tmp_path: Path, llama: LanguageModel) -> None:
    head, _ = loaded(tmp_path, llama, "flat", torch.float32)
    assert head.tokens is not None
    logprobs = head.logits(torch.ones((1, WIDTH))).log_softmax(-1)[0]
    others = [token for token in range(tiny.VOCABULARY) if token not in head.tokens.tolist()]
    assert logprobs.isfinite().all()
    assert logprobs[others].exp().max() == 0
    assert logprobs[head.tokens].exp().sum() == pytest.approx(1)


def test_half_precision_is_near_the_reference(tmp_path: Path, llama: LanguageModel) -> None:
    head, checkpoint = loaded(tmp_path, llama, "flat", torch.bfloat16)
    seen = states(head)
    expected = checkpoint.outputs(
        llama.embedding.double().numpy()[TOKENS], checkpoint.fused(np.split(seen.numpy(), 3, -1))
    )
    causal = np.tri(len(TOKENS), dtype=np.bool_)
    found = head.forward(head.new_cache(8), TOKENS, head.fused(seen), range(len(TOKENS)), causal)
    assert found.dtype is torch.bfloat16
    assert found.double().numpy() == pytest.approx(expected, abs=0.05 * float(np.abs(expected).max()))


def test_without_a_target_a_head_runs_as_a_model_does(tmp_path: Path, llama: LanguageModel) -> None:
    head, _ = loaded(tmp_path, llama, "EAGLE-3.1", torch.float32)
    model = timed(head)
    cache = model.new_cache(8)
    assert model.read(cache, [1, 2, 3]).shape == (tiny.VOCABULARY,)
    assert (cache.length, cache.used) == (3, 3)
    assert model.forward(cache, [4, 5], [3, 3], np.eye(2, dtype=np.bool_)).shape == (2, tiny.VOCABULARY)
    assert (cache.length, cache.used) == (3, 5)


# Passes of fixed shape

GIVEN, DRAFTED = [5, 99, 7, 250, 12], [41, 60, 41]
SLOTS = 64


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if "P-EAGLE" not in name])
@torch.no_grad()
def test_rows_of_text_and_tree_have_the_outputs_of_the_host(tmp_path: Path, llama: LanguageModel, layout: str) -> None:
    head, _ = loaded(tmp_path, llama, layout, torch.float64)
    given_states = torch.randn(len(GIVEN), head.no_states(1).shape[1], generator=torch.Generator().manual_seed(3))
    cache = head.new_cache(SLOTS)
    text = head.forward(cache, GIVEN, head.fused(given_states), range(len(GIVEN)), np.tri(len(GIVEN), dtype=np.bool_))
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
    assert static_head(loaded(tmp_path, llama, "P-EAGLE", torch.float64)[0]) is None
    assert static_head(None) is None
