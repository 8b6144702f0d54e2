"""The embedded pair: small, exact and useful. Texts that are not shipped are read from DYNATUI_DATA."""

import os
from pathlib import Path
from statistics import fmean

import pytest
import torch
from transformers import AutoConfig, GenerationConfig

from decoder import RunConfig, decode, load_pair
from decoder.engine import Engine
from decoder.events import Figures, Summary
from decoder.methods.dynatree import PRESETS
from decoder.models.checkpoints import EMBEDDED, EMBEDDED_DRAFT, EMBEDDED_TARGET
from dynatui.lab.training.card import measure

PROMPT = "The old man put down his lantern and looked at the boy for a long time without speaking. At last he said,"


@pytest.fixture(scope="module")
def engine() -> Engine:
    return load_pair(dtype="float32", device="cpu")


@pytest.fixture(scope="module")
def held_out() -> list[Path]:
    """Ten books that were not used to train the pair."""
    folder = Path(os.environ.get("DYNATUI_DATA", "no folder was named")) / "books_test"
    texts = sorted(folder.glob("*.txt"))
    if not texts:
        pytest.skip("DYNATUI_DATA names no folder with books_test/")
    return texts


@pytest.fixture
def excerpts(held_out: list[Path], tmp_path: Path) -> list[Path]:
    """Excerpts of five books for a context of 1,024 tokens, of the first for 2,048; whole books would take minutes.

    In 5,000 tokens, an agreement of 0.62 has a standard error below 0.01, so a bound of 0.57 is not missed by chance.
    """
    found = [tmp_path / text.name for text in held_out[:5]]
    for excerpt, text in zip(found, held_out[:5], strict=True):
        length = 10_000 if text is held_out[0] else 5_000
        excerpt.write_text(text.read_text(encoding="utf-8")[50_000:][:length], encoding="utf-8")
    return found


def summary(engine: Engine, prompt: str, config: RunConfig) -> dict[str, Figures]:
    return next(event.methods for event in decode(engine, prompt, config) if isinstance(event, Summary))


def test_all_models_together_are_small_enough_to_ship() -> None:
    assert sum(file.stat().st_size for file in EMBEDDED.rglob("*") if file.is_file()) <= 40_000_000


def test_models_are_in_hugging_face_s_layout() -> None:
    for folder in (EMBEDDED_TARGET, EMBEDDED_DRAFT):
        assert {"config.json", "model.safetensors", "tokenizer.json"} <= {file.name for file in folder.iterdir()}


def test_the_card_tells_how_the_pair_was_made_and_what_it_is_worth() -> None:
    card = (EMBEDDED / "README.md").read_text(encoding="utf-8")
    for fact in ("bits per byte", "agreement", "seed", "steps", "minutes", "Loss by position", "A sample"):
        assert fact in card


def test_every_method_writes_the_same_text_in_float32(engine: Engine) -> None:
    methods = ("ar", "dynatree", "linear", "fixed", "alg1", "hf")
    figures = summary(engine, PROMPT, RunConfig(methods, max_new_tokens=40))
    assert all(figures[name].identical_to_ar for name in methods)


def test_speculation_saves_target_passes(engine: Engine) -> None:
    config = RunConfig(("dynatree",), max_new_tokens=64, dynatree=PRESETS["paper"])
    figures = summary(engine, PROMPT, config)["dynatree"]
    assert figures.tokens_per_round is not None
    assert figures.tokens_per_round > 1.5


@pytest.mark.shared
def test_the_target_predicts_and_the_draft_agrees_on_unseen_books(excerpts: list[Path]) -> None:
    quality = measure(EMBEDDED_TARGET, EMBEDDED_DRAFT, excerpts, torch.device("cpu"), stride=3)
    assert quality.windows >= 5
    assert quality.bits_per_byte[0] <= 1.50
    assert quality.agreement >= 0.57


@pytest.mark.shared
def test_dynatree_commits_several_tokens_a_round_on_unseen_books(engine: Engine, held_out: list[Path]) -> None:
    config = RunConfig(("dynatree",), max_new_tokens=64, dynatree=PRESETS["paper"])
    opened = [text.read_text(encoding="utf-8")[:1000] for text in held_out[:3]]
    rates = [summary(engine, prompt, config)["dynatree"].tokens_per_round for prompt in opened]
    assert fmean(rate for rate in rates if rate is not None) >= 2.7


@pytest.mark.parametrize("folder", [EMBEDDED_TARGET, EMBEDDED_DRAFT], ids=["target", "draft"])
def test_whoever_loads_the_embedded_pair_with_transformers_decodes_with_a_cache(folder: Path) -> None:
    assert GenerationConfig.from_pretrained(folder).use_cache
    assert AutoConfig.from_pretrained(folder).use_cache
