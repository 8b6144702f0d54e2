"""Passes of fixed shape by an EAGLE-3 head have the outputs of the head's passes on the host."""

from pathlib import Path

import numpy as np
import pytest
import torch

from decoder.forward.language_model import LanguageModel
from decoder.heads.eagle3 import Head, StaticHead, static_head
from decoder.models.heads import head_shape, load_head
from tests.eagle3_checkpoints import LAYOUTS, save_head, target

TEXT, DRAFTED = [5, 99, 7, 250, 12], [41, 60, 41]
HIDDEN = float(torch.finfo(torch.float64).min)
SLOTS = 64


@pytest.fixture(scope="module")
def llama() -> LanguageModel:
    return LanguageModel.of_module(target("llama"), "llama")


def loaded(folder: Path, llama: LanguageModel, layout: str) -> Head:
    saved = str(save_head(folder / "head", LAYOUTS[layout]))
    shape = head_shape(saved)
    assert shape
    head = load_head(saved, shape, llama, torch.float64)
    assert isinstance(head, Head)
    return head


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if "P-EAGLE" not in name])
@torch.no_grad()
def test_rows_of_text_and_tree_have_the_outputs_of_the_host(tmp_path: Path, llama: LanguageModel, layout: str) -> None:
    head = loaded(tmp_path, llama, layout)
    states = torch.randn(len(TEXT), head.no_states(1).shape[1], generator=torch.Generator().manual_seed(3))
    cache = head.new_cache(SLOTS)
    text = head.forward(cache, TEXT, head.fused(states), range(len(TEXT)), np.tri(len(TEXT), dtype=np.bool_))
    cache.keep(range(len(TEXT)))
    carried = head.carried(text[-1:]).expand(len(DRAFTED), -1)
    drafted = head.forward(cache, DRAFTED, carried, [len(TEXT)] * 3, np.eye(3, dtype=np.bool_))

    static = static_head(head)
    assert isinstance(static, StaticHead)
    store = static.new_store(SLOTS)
    # Rows of the tree are not in the slots that follow the text.
    slots = torch.tensor([*range(len(TEXT)), 11, 9, 20])
    rotation = static.rotation(torch.tensor([*range(len(TEXT)), *[len(TEXT)] * 3]))
    bias = torch.full((len(slots), SLOTS), HIDDEN, dtype=torch.float64)
    for row, slot in enumerate(slots.tolist()):
        bias[row, : min(row + 1, len(TEXT))] = bias[row, slot] = 0
    given, drafts = slice(len(TEXT)), slice(len(TEXT), None)
    ids, more = torch.tensor(TEXT), torch.tensor(DRAFTED)
    of_text = static.outputs(store, ids, head.fused(states), rotation[:, given], slots[given], bias[given])
    of_tree = static.outputs(store, more, carried, rotation[:, drafts], slots[drafts], bias[drafts])
    torch.testing.assert_close(of_text, text, rtol=0, atol=1e-10)
    torch.testing.assert_close(of_tree, drafted, rtol=0, atol=1e-10)
    assert not store[:, :, :, [8, 10, 21]].any()


def test_heads_that_draft_all_levels_in_one_pass_have_no_static_form(tmp_path: Path, llama: LanguageModel) -> None:
    assert static_head(loaded(tmp_path, llama, "P-EAGLE")) is None
    assert static_head(None) is None
