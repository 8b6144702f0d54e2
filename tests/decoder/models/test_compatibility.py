"""Models that the engine cannot decode exactly are detected by configuration, tokenizer, or a small trial tree."""

import copy
import math
import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import (
    AutoConfig,
    BigBirdConfig,
    BloomConfig,
    CLIPConfig,
    DogeConfig,
    GPTNeoConfig,
    MptConfig,
    OpenAIGPTConfig,
    RobertaConfig,
    T5Config,
    ViTConfig,
    XLNetConfig,
)

from decoder.errors import DeviceError, PairError
from decoder.forward.hf import ModuleForward, cache_argument, has_room
from decoder.forward.language_model import LanguageModel
from decoder.knobs import MOST
from decoder.models.compatibility import REMEDY, check_architecture, check_config, probe, tokenizers_of
from tests import tiny

REFUSED: dict[str, Callable[[], Any]] = {
    "an encoder-decoder": T5Config,
    "layers of type recurrent": lambda: SimpleNamespace(layer_types=["full_attention", "recurrent"]),
    "local windows of 256 tokens": lambda: SimpleNamespace(attention_layers=["global", "local"], window_size=256),
    "a choice of 8 tokens": lambda: DogeConfig(keep_window_size=8, max_position_embeddings=64),
    "a sliding window of 0 tokens": lambda: SimpleNamespace(layer_types=["sliding_attention"]),
    "a sliding window of 'wide' tokens": lambda: SimpleNamespace(
        sliding_window="wide", layer_types=["sliding_attention"]
    ),
    "no attention heads, and no layers whose state is of a known kind": SimpleNamespace,
    "in both directions": XLNetConfig,
}
ACCEPTED: dict[str, dict[str, Any]] = {
    "full attention in every layer": {"layer_types": ["full_attention"] * 2},
    "global attention in every layer": {"attention_layers": ["global"] * 2},
    "a window that is switched off": {"sliding_window": 8, "use_sliding_window": False},
    "a window as wide as the context": {"sliding_window": 64},
    "layers with a window as wide as the context": {"sliding_window": 64, "layer_types": ["sliding_attention"]},
    "layers with chunks as wide as the context": {"attention_chunk_size": 64, "layer_types": ["chunked_attention"]},
    "local windows as wide as the context": {"window_size": 64, "attention_layers": ["global", "local"]},
    "a window that no layer has": {"sliding_window": 8, "layer_types": ["full_attention"] * 2},
    "a window in every layer": {"sliding_window": 8},
    "a window in some layers": {"sliding_window": 8, "layer_types": ["full_attention", "sliding_attention"]},
    "chunks": {"attention_chunk_size": 16, "layer_types": ["chunked_attention"]},
    "keys that an indexer chooses": {"layer_types": ["indexed_attention"]},
    "layers that keep states": {"layer_types": ["conv", "linear_attention", "hybrid", "moe", "mlp"]},
    "states without attention": {"layer_types": ["linear_attention"], "num_attention_heads": None},
    "a size of each layer": {"intermediate_size": [48, 64]},
}


class Heterogeneous(SimpleNamespace):
    """A configuration with different values in each layer; as in transformers, a shared field then cannot be read."""

    @property
    def num_attention_heads(self) -> int:
        raise RuntimeError("may vary across layers")

    @property
    def sliding_window(self) -> int:
        raise RuntimeError("may vary across layers")


def by_layers(*windows: int) -> Heterogeneous:
    layers = [SimpleNamespace(num_attention_heads=4, sliding_window=window) for window in windows]
    kinds = ["sliding_attention"] * len(windows)
    return Heterogeneous(per_layer_config=layers, layer_types=kinds, max_position_embeddings=64)


@pytest.mark.parametrize(("kind", "config"), REFUSED.items(), ids=REFUSED)
def test_a_configuration_tells_what_the_engine_cannot_decode(kind: str, config: Callable[[], Any]) -> None:
    with pytest.raises(PairError, match=f"owner/model (is|has|attends to|reads a text) {kind}.*; {REMEDY}"):
        check_architecture("owner/model", config())


@pytest.mark.parametrize("settings", ACCEPTED.values(), ids=ACCEPTED)
def test_full_attention_is_accepted_however_it_is_written(settings: dict[str, Any]) -> None:
    check_architecture(
        "owner/model", SimpleNamespace(**{"num_attention_heads": 4, "max_position_embeddings": 64} | settings)
    )


@pytest.mark.parametrize(("config", "kind"), [(ViTConfig, "vit"), (CLIPConfig, "clip")])
def test_a_model_that_is_none_of_language_is_refused_by_its_type(config: Callable[[], Any], kind: str) -> None:
    with pytest.raises(PairError, match=f"owner/model is a model of type {kind}, which does not generate text; choose"):
        check_config("owner/model", config())


def test_a_language_model_is_refused_for_its_layers() -> None:
    with pytest.raises(PairError, match="owner/model has no attention heads"):
        check_config("owner/model", AutoConfig.for_model("blt"))
    with pytest.raises(PairError, match="owner/model is an encoder-decoder"):
        check_config("owner/model", T5Config())


def test_several_language_models_are_refused() -> None:
    with pytest.raises(PairError, match="owner/model contains several language models, but only one is"):
        check_config("owner/model", AutoConfig.for_model("musicgen"))


def test_layers_that_differ_are_looked_at_one_by_one() -> None:
    check_architecture("owner/model", by_layers(64, 80))
    check_architecture("owner/model", by_layers(8, 8))
    with pytest.raises(
        PairError, match=r"attends to a sliding window of different sizes \(8, 64 tokens\), which is not"
    ):
        check_architecture("owner/model", by_layers(64, 8))


def test_one_vocabulary_is_not_enough_when_texts_are_cut_differently(tmp_path: Path) -> None:
    for name, begin in (("target", True), ("draft", False)):
        tiny.train_tokenizer(begin=begin).save_pretrained(tmp_path / name)
    _, of_draft = tokenizers_of(str(tmp_path / "target"), str(tmp_path / "draft"))
    assert of_draft is not None


def test_a_text_that_is_cut_alike_is_not_enough_when_one_vocabulary_has_more(tmp_path: Path) -> None:
    tokenizer = tiny.train_tokenizer()
    tokenizer.save_pretrained(tmp_path / "target")
    tokenizer.add_tokens(["<|more|>"])
    tokenizer.save_pretrained(tmp_path / "draft")
    _, of_draft = tokenizers_of(str(tmp_path / "target"), str(tmp_path / "draft"))
    assert of_draft is not None


def test_a_draft_with_the_targets_tokenizer_needs_none_of_its_own(tmp_path: Path) -> None:
    for name in ("target", "draft"):
        tiny.train_tokenizer().save_pretrained(tmp_path / name)
    _, of_draft = tokenizers_of(str(tmp_path / "target"), str(tmp_path / "draft"))
    assert of_draft is None


def deaf(family: str, dtype: torch.dtype, missed: str) -> LanguageModel:
    """A model whose module ignores the argument `missed` of a tree pass."""
    module = tiny.build(tiny.FAMILIES[family](), seed=1).to(dtype)
    hearing = module.forward

    @wraps(hearing)
    def forward(**told: Any) -> Any:
        kept = (
            {name: value for name, value in told.items() if name != missed} if cache_argument(module) in told else told
        )
        return hearing(**kept)

    module.forward = forward
    return LanguageModel.of_module(module, family).with_forward(ModuleForward(module))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("missed", ["attention_mask", "position_ids"])
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_a_model_that_ignores_where_nodes_stand_computes_whole_paths(
    family: str, missed: str, dtype: torch.dtype
) -> None:
    hearing, model = deaf(family, dtype, missed="nothing"), deaf(family, dtype, missed)
    probe(hearing)
    assert not hearing.hf.by_paths
    with pytest.raises(
        PairError, match=rf"{family} computes different logits for a draft tree of 34 nodes .*difference \d"
    ):
        probe(model, plain=hearing)
    probe(model)
    assert model.hf.by_paths


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_model_that_counts_rows_for_its_biases_is_noticed_in_half_precision_too(dtype: torch.dtype) -> None:
    config = MptConfig(d_model=32, n_layers=2, n_heads=2, max_seq_len=64, vocab_size=96)
    with pytest.raises(PairError, match="mpt computes different logits for a draft tree"):
        probe(by_rows(tiny.build(config, seed=1).to(dtype), "mpt"))


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_a_model_that_overflows_in_its_dtype_is_refused(family: str) -> None:
    module = tiny.build(tiny.FAMILIES[family](), seed=1)
    module.get_output_embeddings().weight.data.mul_(1e5)
    probe(LanguageModel.of_module(module, family))
    with pytest.raises(PairError, match=f"{family} computes logits that are not finite in float16; .*float32"):
        probe(LanguageModel.of_module(module.to(torch.float16), family))


def test_a_tree_without_numbers_where_plain_text_has_some_is_refused() -> None:
    model = deaf("llama", torch.float32, missed="nothing")
    plain = model.forward
    model.forward = lambda *given: plain(*given) * math.nan  # type: ignore[method-assign]
    with pytest.raises(PairError, match="llama computes different logits for a draft tree"):
        probe(model)


def unfit(fault: str) -> str:
    """Regular expression of the full error message."""
    return re.escape(f"tiny cannot run a draft tree: {fault}; {REMEDY}") + "$"


def of_module(module: Any) -> LanguageModel:
    return LanguageModel.of_module(module, "tiny")


def by_rows(module: Any, name: str = "tiny") -> LanguageModel:
    """A model that runs through its module with one row per node, whatever its family."""
    return LanguageModel.of_module(module, name).with_forward(ModuleForward(module))


def test_a_model_that_takes_no_tree_mask_is_refused() -> None:
    module = tiny.build(BloomConfig(hidden_size=32, n_layer=2, n_head=2, vocab_size=96), seed=1)
    fault = "it does not accept the attention mask or the positions of a tree"
    with pytest.raises(PairError, match=unfit(fault)):
        probe(by_rows(module))


def test_a_model_that_keeps_something_else_than_keys_and_values_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = deaf("gpt2", torch.float32, missed="nothing")
    forward, name = model.hf.module.forward, cache_argument(model.hf.module)

    @wraps(forward)
    def with_a_state(**given: Any) -> Any:
        if name in given:
            given[name].get_conv_state(0)
        return forward(**given)

    monkeypatch.setattr(model.hf.module, "forward", with_a_state)
    with pytest.raises(PairError, match=r"gpt2 cannot .*: its cache contains something other than keys"):
        probe(model)


def test_a_model_that_reads_no_plain_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = deaf("gpt2", torch.float32, missed="nothing")
    monkeypatch.setattr(model.hf.module, "forward", lambda **given: given["pixels"])
    with pytest.raises(PairError, match=r"gpt2 cannot .*: it does not run on token ids alone; choose"):
        probe(model)


def test_memory_that_is_full_is_no_fault_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    model = deaf("gpt2", torch.float32, missed="nothing")
    monkeypatch.setattr(model.hf.module, "forward", full)
    with pytest.raises(DeviceError, match="the memory of cpu is too small to run gpt2; choose a smaller model"):
        probe(model)


# Limits beyond the sizes in a configuration


def doge(**changes: Any) -> Any:
    """A family whose attention selects tokens by value once a text is longer than a window."""
    shape: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 200}
    bare = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    return tiny.build(
        DogeConfig(**shape | bare | {"intermediate_size": 64, "num_key_value_heads": 2} | changes), seed=1
    )


@pytest.mark.parametrize(
    ("window", "context", "dtype"),
    [
        *((8, 64, torch.float32), (63, 64, torch.bfloat16)),
        *((4096, 4097, torch.float32), (2**19, 2**20, torch.bfloat16)),
    ],
)
def test_a_window_is_tried_however_long_the_text_is_that_outgrows_it(
    window: int, context: int, dtype: torch.dtype
) -> None:
    module = doge(keep_window_size=window, max_position_embeddings=context).to(dtype)
    fault = f"tiny, in a text longer than its keep_window_size of {window}, computes different logits for a draft tree"
    with pytest.raises(PairError, match=re.escape(fault)):
        probe(of_module(module))


def test_a_window_that_no_text_outgrows_is_not_tried() -> None:
    probe(of_module(doge(keep_window_size=64, max_position_embeddings=64)))


@pytest.mark.parametrize("scale", [math.nan, None], ids=["no numbers", "a failure"])
def test_a_model_is_not_refused_for_what_no_text_is_computed_with(
    scale: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def resized(module: Any, name: str, _: int) -> Any:
        tried.append(name)
        twin = copy.deepcopy(module)
        twin.forward = lambda **given: SimpleNamespace(logits=module(**given).logits * scale)
        return twin

    monkeypatch.setattr("decoder.forward.hf.resized", resized)
    probe(of_module(tiny.build(tiny.FAMILIES["qwen3"](), seed=1).double()))
    assert tried == ["max_window_layers"]


# Longest texts


def test_a_model_with_fewer_positions_than_its_configuration_names_is_refused() -> None:
    module = tiny.build(tiny.FAMILIES["gpt2"](), seed=1)
    module.config.max_position_embeddings = tiny.CONTEXT + 1
    fault = f"it has fewer positions than the {tiny.CONTEXT + 1} that its configuration states"
    with pytest.raises(PairError, match=unfit(fault)):
        probe(of_module(module))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_whose_own_mask_ends_with_its_longest_text_has_no_room_for_a_tree_there(dtype: torch.dtype) -> None:
    """Rounds would fail where the text and the tree's nodes together exceed the longest text."""
    config = GPTNeoConfig(
        hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global"], 2]], max_position_embeddings=64,
        vocab_size=96,
    )  # fmt: skip
    assert not has_room(tiny.build(config, seed=1).to(dtype), 64, 1 + MOST)


def test_a_model_that_counts_kinds_of_tokens_as_far_as_its_longest_text_computes_whole_paths() -> None:
    """Rounds would fail where a tree alone has more nodes than the longest text has tokens."""
    config = BigBirdConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=32, vocab_size=96,
        max_position_embeddings=64, is_decoder=True, attention_type="original_full",
    )  # fmt: skip
    model = of_module(tiny.build(config, seed=1))
    with pytest.raises(PairError, match=unfit("it has no room for a tree after a text of 64 tokens")):
        probe(model, plain=model)
    probe(model)
    assert model.hf.by_paths


def test_a_model_that_counts_positions_in_its_own_way_is_refused() -> None:
    config = RobertaConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=32, vocab_size=96,
        max_position_embeddings=64, is_decoder=True,
    )  # fmt: skip
    with pytest.raises(
        PairError,
        match=r"tiny computes different logits with the positions .* than with the model's own positions \(difference",
    ):
        probe(of_module(tiny.build(config, seed=1)))


def test_a_model_without_a_cache_is_refused() -> None:
    config = OpenAIGPTConfig(n_embd=32, n_layer=1, n_head=2, vocab_size=96, n_positions=64)
    with pytest.raises(PairError, match=unfit("it keeps no cache of a text")):
        probe(of_module(tiny.build(config, seed=1)))
