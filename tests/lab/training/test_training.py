"""The training recipe at toy scale, and a head in training, which has the logits of the drafting head."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from decoder.draft.head_passes import Eagle3Passes
from decoder.engine import Engine
from decoder.forward.language_model import LanguageModel
from decoder.forward.taps import LayerStates
from decoder.models.heads import head_shape, load_head
from decoder.models.pair import Pair
from decoder.tree import TokenTree
from dynatui.lab import training as recipe
from dynatui.lab.training import corpus, loop
from dynatui.lab.training.head import TrainedHead, head_loss

STAGE = replace(recipe.STAGES["draft"], windows=((0.5, 8), (1.0, 16)), batch_tokens=64, minutes=1.0)
SHAPE = recipe.Shape(hidden=16, layers=1, heads=2, tied=True)


def test_the_rate_rises_holds_and_falls_to_zero_and_windows_grow_with_the_share_of_the_budget() -> None:
    stage = replace(STAGE, warmup=0.1, decay=0.4)
    assert [stage.rate(share) for share in (0.0, 0.05, 0.3, 0.8, 1.0)] == pytest.approx([0.0, 0.5, 1.0, 0.5, 0.0])
    assert [STAGE.window(share) for share in (0.0, 0.49, 0.5, 1.0)] == [8, 8, 16, 16]


def test_windows_are_runs_of_tokens_from_the_texts_in_turn_and_cover_them_evenly_at_any_moment() -> None:
    low, high = np.arange(1000, dtype=np.uint16), np.arange(1000, 1100, dtype=np.uint16)
    rows = corpus.batch([low, high], 3, 4, 5)
    assert rows.shape == (4, 6)
    assert (np.diff(rows) == 1).all()
    assert (rows[:, 0] >= 1000).tolist() == [True, False, True, False]
    assert (rows[[1, 3]] == corpus.batch([low], 2, 2, 5)).all()
    starts = np.sort(corpus.batch([low], 0, 100, 1)[:, 0])
    assert np.diff(starts).max() < 3 * 1000 / 100


def test_the_tokenizer_gives_every_string_back(tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text("It was a dark and stormy night. " * 50, encoding="utf-8")
    tokenizer = corpus.train_tokenizer([book], 300)
    text = "Ünknown — 12 «words»\n\n\tand 🌊"
    assert tokenizer.decode(tokenizer(text).input_ids) == text
    with pytest.raises(FileNotFoundError, match="--data"):
        corpus.books(tmp_path / "none")


def trainer(checkpoint: Path) -> loop.Trainer:
    model = loop.new_model(SHAPE, 50, seed=1)
    return loop.Trainer(model, loop.text_loss, replace(STAGE, minutes=0.02), torch.device("cpu"), checkpoint)


def test_a_stage_ends_with_its_budget_and_learns_and_resumes_from_its_checkpoint(tmp_path: Path) -> None:
    ids = np.tile(np.arange(5, dtype=np.uint16), 200)
    first = trainer(tmp_path / "stage.ckpt")
    batch = torch.from_numpy(corpus.batch([ids], 0, 4, 16))
    before = loop.text_loss(first._model, batch).item()
    done = first.run([ids], lambda _: None)
    assert done.seconds >= 0.02 * 60
    assert loop.text_loss(first._model, batch).item() < 0.5 * before
    second = trainer(tmp_path / "stage.ckpt")
    assert second.progress == done
    weights = zip(first._model.parameters(), second._model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in weights)


@pytest.mark.parametrize("loss_of", [loop.distillation_loss, partial(loop.draft_overlap_loss, temperature=0.6)])
def test_a_loss_falls_to_zero_where_draft_and_target_agree(loss_of: Callable[[Any], loop.Loss]) -> None:
    target, draft = loop.new_model(SHAPE, 50, seed=1), loop.new_model(SHAPE, 50, seed=2)
    batch = torch.randint(0, 50, (2, 9), generator=torch.Generator().manual_seed(0))
    assert loss_of(target)(draft, batch).item() > 0.001
    assert loss_of(target)(target, batch).item() == pytest.approx(0, abs=1e-6)


def test_one_minus_the_overlap_is_the_share_of_rejected_guesses() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0], [1.0, 0.0, -1.0]], dtype=torch.float64)
    draft_probs, target_probs = (logits / 0.6).softmax(-1), (logits.flip(0) / 0.6).softmax(-1)
    rejected = (draft_probs - target_probs).clamp(min=0).sum(-1).mean()
    divergence = (target_probs * (target_probs / draft_probs).log()).sum(-1).mean()
    expected = rejected + torch.exp(-loop.DIVERGENCE_DECAY * (1 - rejected)) * divergence
    assert loop.overlap_loss(logits, logits.flip(0), 0.6).item() == pytest.approx(expected.item(), rel=1e-5)


def test_samples_are_continued_where_they_stopped(tmp_path: Path) -> None:
    no_text_is_read: Any = None
    target = LanguageModel.of_module(loop.new_model(SHAPE, 50, seed=1).eval(), "target")
    engine = Engine(Pair(target, None, no_text_is_read, eos=frozenset({3}), context=64))
    books = np.random.default_rng(0).integers(0, 50, 400).astype(np.uint16)
    plan = recipe.Samples(temperature=0.6, prompt=6, length=10, rows=3, batches=2)
    lines: list[str] = []
    corpus.sample_texts(engine, books, plan, tmp_path, lines.append)
    whole = corpus.sampled_texts(tmp_path)
    (tmp_path / "001.npy").unlink()
    corpus.sample_texts(engine, books, plan, tmp_path, lines.append)
    assert (corpus.sampled_texts(tmp_path) == whole).all()
    assert len(whole) == 2 * 3 * 10
    assert [line[0] for line in lines] == ["1", "2", "2"]


HEAD = recipe.HeadRecipe(hidden=16, heads=2, intermediate=24, layers=(0, 1, 2), steps=3, step_weight=0.8)
WIDE = recipe.Shape(hidden=32, layers=3, heads=2, tied=False)
VOCABULARY = 50
TEXT = [7, 3, 19, 24, 24, 1, 40, 11, 8]


def tiny_head(spread: float = 0.4) -> TrainedHead:
    """A head of random weights; bfloat16 represents each of them exactly."""
    head = TrainedHead(HEAD, WIDE.hidden, VOCABULARY, seed=3)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for weight in head.parameters():
            noise = torch.randn(weight.shape, generator=generator) * spread
            weight.copy_((noise if weight.dim() > 1 else 1 + noise).bfloat16())
    return head


@torch.inference_mode()
def test_a_trained_head_drafts_with_the_logits_of_its_training(tmp_path: Path) -> None:
    target, head = loop.new_model(WIDE, VOCABULARY, seed=1).eval(), tiny_head()
    read = target(torch.tensor([TEXT]), output_hidden_states=True)
    layers = [read.hidden_states[layer][0] for layer in HEAD.layers]
    levels = head(torch.cat(layers, -1)[None, :-1], torch.tensor([TEXT[1:]]), HEAD.steps)

    head.save(tmp_path, 64)
    shape = head_shape(str(tmp_path))
    assert shape
    drafting: Any = load_head(str(tmp_path), shape, LanguageModel.of_module(target, "target"), torch.float32)
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
    target = loop.new_model(WIDE, VOCABULARY, seed=1).eval()
    with torch.no_grad():
        target.get_output_embeddings().weight.mul_(20)
    text = np.random.default_rng(0).integers(0, 8, 400).astype(np.uint16)
    stage = recipe.Stage(0.01, muon_lr=5e-3, adam_lr=4e-3, windows=((1.0, 16),), batch_tokens=64)
    head = TrainedHead(HEAD, WIDE.hidden, VOCABULARY, seed=3)
    loss: Any = head_loss(target, HEAD, 0.6)
    batch = torch.from_numpy(corpus.batch([text], 0, 4, 16))
    before = loss(head, batch).item()
    loop.Trainer(head, loss, stage, torch.device("cpu"), tmp_path / "head.ckpt").run([text], lambda _: None)
    assert loss(head, batch).item() < 0.9 * before


def test_a_level_is_trained_on_the_rows_that_it_can_draft() -> None:
    """The loss of a level ignores the logits of rows that are not drafts."""
    target, head = loop.new_model(WIDE, VOCABULARY, seed=1).eval(), tiny_head()
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
