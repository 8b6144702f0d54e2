"""The EAGLE-3 head in training has the logits of the drafting head, level by level; training lowers its loss."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from decoder.draft.head_passes import Eagle3Passes
from decoder.forward.language_model import LanguageModel
from decoder.forward.taps import LayerStates
from decoder.models.head_config import head_shape
from decoder.models.heads import load_head
from decoder.tree import TokenTree
from dynatui.lab.training import corpus, loop, recipe
from dynatui.lab.training.head import TrainedHead, head_loss

HEAD = recipe.HeadRecipe(hidden=16, heads=2, intermediate=24, layers=(0, 1, 2), steps=3, step_weight=0.8)
SHAPE = recipe.Shape(hidden=32, layers=3, heads=2, tied=False)
VOCABULARY = 50
TEXT = [7, 3, 19, 24, 24, 1, 40, 11, 8]


def tiny_head(spread: float = 0.4) -> TrainedHead:
    """A head of random weights; bfloat16 represents each of them exactly."""
    head = TrainedHead(HEAD, SHAPE.hidden, VOCABULARY, seed=3)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for weight in head.parameters():
            noise = torch.randn(weight.shape, generator=generator) * spread
            weight.copy_((noise if weight.dim() > 1 else 1 + noise).bfloat16())
    return head


@torch.inference_mode()
def test_a_trained_head_drafts_with_the_logits_of_its_training(tmp_path: Path) -> None:
    target, head = loop.new_model(SHAPE, VOCABULARY, seed=1).eval(), tiny_head()
    read = target(torch.tensor([TEXT]), output_hidden_states=True)
    layers = [read.hidden_states[layer][0] for layer in HEAD.layers]
    levels = head(torch.cat(layers, -1)[None, :-1], torch.tensor([TEXT[1:]]), HEAD.steps)

    head.save(tmp_path, 64)
    shape = head_shape(str(tmp_path))
    assert shape
    drafting = load_head(str(tmp_path), shape, LanguageModel.of_module(target, "target"), torch.float32)
    for last in range(1, len(TEXT) - HEAD.steps):
        states = LayerStates(HEAD.layers)
        states.put(0, [layer[:last] for layer in layers])
        passes = Eagle3Passes(drafting, len(TEXT), states)
        passes.read(TEXT[:last])
        rows = [passes.after_text(TEXT[: last + 1])]
        passes.begin_tree()
        tree = TokenTree([TEXT[last]])
        for level in range(1, HEAD.steps):
            tree.grow(level - 1, [TEXT[last + level]], [0.0])
            rows.append(passes.after_level(tree, [level])[0][0])
        trained = torch.stack([level[0, last - 1 + number] for number, level in enumerate(levels)])
        torch.testing.assert_close(torch.stack([row.flatten() for row in rows]), trained, rtol=1e-4, atol=1e-4)


def test_a_head_learns_to_draft_for_its_target(tmp_path: Path) -> None:
    target = loop.new_model(SHAPE, VOCABULARY, seed=1).eval()
    with torch.no_grad():
        target.get_output_embeddings().weight.mul_(20)
    text = np.random.default_rng(0).integers(0, 8, 400).astype(np.uint16)
    stage = recipe.Stage(0.01, muon_lr=5e-3, adam_lr=4e-3, windows=((1.0, 16),), batch_tokens=64)
    head = TrainedHead(HEAD, SHAPE.hidden, VOCABULARY, seed=3)
    loss: Any = head_loss(target, HEAD, 0.6)
    batch = torch.from_numpy(corpus.batch([text], 0, 4, 16))
    before = loss(head, batch).item()
    loop.Trainer(head, loss, stage, torch.device("cpu"), tmp_path / "head.ckpt").run([text], lambda _: None)
    assert loss(head, batch).item() < 0.9 * before


def test_a_level_is_trained_on_the_rows_that_it_can_draft() -> None:
    """The loss of a level ignores the logits of rows that are not drafts."""
    target, head = loop.new_model(SHAPE, VOCABULARY, seed=1).eval(), tiny_head()
    ids, seen = torch.tensor([[*TEXT, 5]]), list[torch.Tensor]()
    forward = head.forward

    def changed(states: Any, tokens: Any, steps: int) -> Any:
        levels = [level.clone() for level in forward(states, tokens, steps)]
        for number, level in enumerate(levels):
            level[:, :number] = 100.0
        seen.extend(levels)
        return levels

    loss: Any = head_loss(target, HEAD, 0.6)
    expected = loss(head, ids).item()
    head.forward = changed  # type: ignore[method-assign]
    assert loss(head, ids).item() == pytest.approx(expected)
    assert len(seen) == HEAD.steps
