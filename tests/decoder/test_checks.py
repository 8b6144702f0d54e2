"""What the engine could not decode exactly is noticed by its configuration, its tokenizer, or a small tree."""

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import BloomConfig, GPTNeoConfig, MistralConfig, MptConfig, T5Config

from decoder.checks import check_architecture, common_tokenizer, probe
from decoder.errors import PairError
from decoder.forward import ModuleForward
from decoder.models import LanguageModel
from tests import tiny

REFUSED: dict[str, Callable[[], Any]] = {
    "an encoder-decoder": T5Config,
    "layers of type linear_attention": lambda: SimpleNamespace(layer_types=["full_attention", "linear_attention"]),
    "local attention": lambda: GPTNeoConfig(num_layers=2, attention_types=[[["global", "local"], 1]]),
    "a sliding window of 8 tokens": lambda: MistralConfig(sliding_window=8, max_position_embeddings=64),
    "no attention heads": SimpleNamespace,
}
ACCEPTED: dict[str, dict[str, Any]] = {
    "full attention in every layer": {"layer_types": ["full_attention"] * 2},
    "global attention in every layer": {"attention_layers": ["global"] * 2},
    "a window that is switched off": {"sliding_window": 8, "use_sliding_window": False},
    "a window as wide as the context": {"sliding_window": 64},
}


@pytest.mark.parametrize(("kind", "config"), REFUSED.items(), ids=REFUSED)
def test_a_configuration_tells_what_the_engine_cannot_decode(kind: str, config: Callable[[], Any]) -> None:
    with pytest.raises(PairError, match=f"owner/model (is|has|attends to) {kind}.*; choose a decoder-only model"):
        check_architecture("owner/model", config())


@pytest.mark.parametrize("settings", ACCEPTED.values(), ids=ACCEPTED)
def test_full_attention_is_accepted_however_it_is_written(settings: dict[str, Any]) -> None:
    check_architecture("owner/model", SimpleNamespace(num_attention_heads=4, max_position_embeddings=64, **settings))


def test_one_vocabulary_is_not_enough_when_texts_are_cut_differently(tmp_path: Path) -> None:
    for name, begin in (("target", True), ("draft", False)):
        tiny.train_tokenizer(begin=begin).save_pretrained(tmp_path / name)
    with pytest.raises(PairError, match="different tokenizers"):
        common_tokenizer(str(tmp_path / "target"), str(tmp_path / "draft"))


def test_a_text_that_is_cut_alike_is_not_enough_when_one_vocabulary_has_more(tmp_path: Path) -> None:
    tokenizer = tiny.train_tokenizer()
    tokenizer.save_pretrained(tmp_path / "target")
    tokenizer.add_tokens(["<|more|>"])
    tokenizer.save_pretrained(tmp_path / "draft")
    with pytest.raises(PairError, match="different tokenizers"):
        common_tokenizer(str(tmp_path / "target"), str(tmp_path / "draft"))


def deaf(family: str, dtype: torch.dtype, missed: str) -> LanguageModel:
    """A model that does not listen to one of the things it is told of a tree."""
    module = tiny.build(tiny.FAMILIES[family](), seed=1).to(dtype)
    hearing = module.forward

    def forward(past_key_values: Any = None, **told: Any) -> Any:
        kept = told if past_key_values is None else {name: value for name, value in told.items() if name != missed}
        return hearing(past_key_values=past_key_values, **kept)

    module.forward = forward
    return LanguageModel(module, family)._run_by(ModuleForward(module))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("missed", ["attention_mask", "position_ids"])
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_a_model_that_ignores_where_nodes_stand_is_refused(family: str, missed: str, dtype: torch.dtype) -> None:
    probe(deaf(family, dtype, missed="nothing"))
    with pytest.raises(PairError, match=rf"{family} computes other logits for a draft tree of 34 nodes .*by \d"):
        probe(deaf(family, dtype, missed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_model_that_counts_rows_for_its_biases_is_refused_in_half_precision_too(dtype: torch.dtype) -> None:
    config = MptConfig(d_model=32, n_layers=2, n_heads=2, max_seq_len=64, vocab_size=96)
    with pytest.raises(PairError, match="mpt computes other logits for a draft tree"):
        probe(LanguageModel(tiny.build(config, seed=1).to(dtype), "mpt"))


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_a_model_that_overflows_in_its_dtype_is_refused(family: str) -> None:
    module = tiny.build(tiny.FAMILIES[family](), seed=1)
    module.get_output_embeddings().weight.data.mul_(1e5)
    probe(LanguageModel(module, family))
    with pytest.raises(PairError, match=f"{family} computes logits in float16 that are no finite numbers; .*float32"):
        probe(LanguageModel(module.to(torch.float16), family))


def test_a_tree_without_numbers_where_plain_text_has_some_is_refused() -> None:
    model = deaf("llama", torch.float32, missed="nothing")
    plain = model.forward
    model.forward = lambda *given: plain(*given) * math.nan  # type: ignore[method-assign]
    with pytest.raises(PairError, match="llama computes other logits for a draft tree"):
        probe(model)


def test_a_model_that_takes_no_tree_mask_is_refused() -> None:
    module = tiny.build(BloomConfig(hidden_size=32, n_layer=2, n_head=2, vocab_size=96), seed=1)
    with pytest.raises(PairError, match=r"bloom cannot run a draft tree \(.+\); choose a decoder-only model"):
        probe(LanguageModel(module, "bloom"))
