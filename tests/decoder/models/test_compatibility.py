"""Models that the engine cannot decode exactly are detected by configuration, tokenizer, or a small trial tree."""

import copy
import math
import re
from collections.abc import Callable
from functools import partial, wraps
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
    MptConfig,
    OpenAIGPTConfig,
    RobertaConfig,
    T5Config,
    ViTConfig,
    XLNetConfig,
)

from decoder.errors import DeviceError, PairError
from decoder.forward.hf import ModuleForward, cache_argument
from decoder.forward.language_model import LanguageModel
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
    usual = {"num_attention_heads": 4, "max_position_embeddings": 64}
    check_architecture("owner/model", SimpleNamespace(**usual | settings))


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (ViTConfig, "is a model of type vit, which does not generate text; choose"),
        (CLIPConfig, "is a model of type clip, which does not generate text; choose"),
        (lambda: AutoConfig.for_model("blt"), "has no attention heads"),
        (T5Config, "is an encoder-decoder"),
        (lambda: AutoConfig.for_model("musicgen"), "contains several language models, but only one is"),
    ],
    ids=["vit", "clip", "blt", "t5", "musicgen"],
)
def test_what_is_no_language_model_that_can_be_decoded_is_refused(config: Callable[[], Any], told: str) -> None:
    with pytest.raises(PairError, match=f"owner/model {told}"):
        check_config("owner/model", config())


def test_layers_that_differ_are_looked_at_one_by_one() -> None:
    check_architecture("owner/model", by_layers(64, 80))
    check_architecture("owner/model", by_layers(8, 8))
    differing = r"attends to a sliding window of different sizes \(8, 64 tokens\), which is not"
    with pytest.raises(PairError, match=differing):
        check_architecture("owner/model", by_layers(64, 8))


@pytest.mark.parametrize(
    ("begins", "more", "own"),
    [((True, False), [], True), ((False, False), ["<|more|>"], True), ((False, False), [], False)],
    ids=["texts are cut differently", "one vocabulary has more", "equal"],
)
def test_a_draft_needs_a_tokenizer_of_its_own_unless_it_is_the_target_s(
    tmp_path: Path,
    begins: tuple[bool, bool],
    more: list[str],
    own: bool,  # noqa: FBT001 - a case
) -> None:
    for name, begin in zip(("target", "draft"), begins, strict=True):
        tokenizer = tiny.train_tokenizer(begin=begin)
        if name == "draft":
            tokenizer.add_tokens(more)
        tokenizer.save_pretrained(tmp_path / name)
    _, of_draft = tokenizers_of(str(tmp_path / "target"), str(tmp_path / "draft"))
    assert (of_draft is not None) is own


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
    told = rf"{family} computes different logits for a draft tree of 34 nodes .*difference \d"
    with pytest.raises(PairError, match=told):
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


def of_module(module: Any) -> LanguageModel:
    return LanguageModel.of_module(module, "tiny")


def by_rows(module: Any, name: str = "tiny") -> LanguageModel:
    """A model that runs through its module with one row per node, whatever its family."""
    return LanguageModel.of_module(module, name).with_forward(ModuleForward(module))


def short() -> Any:
    """A module with fewer positions than its configuration names."""
    module = tiny.build(tiny.FAMILIES["gpt2"](), seed=1)
    module.config.max_position_embeddings = tiny.CONTEXT + 1
    return module


SHAPE: dict[str, Any] = {"hidden_size": 32, "vocab_size": 96}
BERT: dict[str, Any] = SHAPE | {
    "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 32, "max_position_embeddings": 64,
    "is_decoder": True,
}  # fmt: skip
UNFIT: dict[str, Callable[[], LanguageModel]] = {
    "it does not accept the attention mask or the positions of a tree": lambda: by_rows(
        tiny.build(BloomConfig(**SHAPE, n_layer=2, n_head=2), seed=1)
    ),
    f"it has fewer positions than the {tiny.CONTEXT + 1} that its configuration states": lambda: of_module(short()),
    "it keeps no cache of a text": lambda: of_module(
        tiny.build(OpenAIGPTConfig(n_embd=32, n_layer=1, n_head=2, vocab_size=96, n_positions=64), seed=1)
    ),
}
"""Models that cannot run a draft tree, by the fault."""


def unfit(fault: str) -> str:
    """Regular expression of the full error message."""
    return re.escape(f"tiny cannot run a draft tree: {fault}; {REMEDY}") + "$"


@pytest.mark.parametrize("fault", UNFIT)
def test_a_model_that_cannot_run_a_tree_is_refused(fault: str) -> None:
    with pytest.raises(PairError, match=unfit(fault)):
        probe(UNFIT[fault]())


def keeps_a_state(module: Any, **given: Any) -> Any:
    if (name := cache_argument(module)) in given:
        given[name].get_conv_state(0)
    return type(module).forward(module, **given)


def reads_pixels(_module: Any, **given: Any) -> Any:
    return given["pixels"]


def fills_memory(*_: Any, **__: Any) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory")


@pytest.mark.parametrize(
    ("forward", "error", "told"),
    [
        (keeps_a_state, PairError, r"gpt2 cannot .*: its cache contains something other than keys"),
        (reads_pixels, PairError, r"gpt2 cannot .*: it does not run on token ids alone; choose"),
        (fills_memory, DeviceError, "the memory of cpu is too small to run gpt2; choose a smaller model"),
    ],
)
def test_a_pass_that_fails_is_told_for_what_it_is(forward: Any, error: type[Exception], told: str) -> None:
    model = deaf("gpt2", torch.float32, missed="nothing")
    module, hearing = model.hf.module, type(model.hf.module).forward
    module.forward = wraps(hearing)(partial(forward, module))
    with pytest.raises(error, match=told):
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


def test_a_model_that_counts_kinds_of_tokens_as_far_as_its_longest_text_computes_whole_paths() -> None:
    """Rounds would fail where a tree alone has more nodes than the longest text has tokens."""
    model = of_module(tiny.build(BigBirdConfig(**BERT, attention_type="original_full"), seed=1))
    with pytest.raises(PairError, match=unfit("it cannot process a draft tree after a text of 64 tokens")):
        probe(model, plain=model)
    probe(model)
    assert model.hf.by_paths


def test_a_model_that_counts_positions_in_its_own_way_is_refused() -> None:
    told = r"tiny computes different logits with the positions .* than with the model's own positions \(difference"
    with pytest.raises(PairError, match=told):
        probe(of_module(tiny.build(RobertaConfig(**BERT), seed=1)))
