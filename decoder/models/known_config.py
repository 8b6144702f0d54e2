"""Reads config.json of the native families (GPT-NeoX, Llama, Mistral, Qwen2, Qwen3), if every field in it is known.

Every field must have a known name, and a value whose meaning to transformers is certain; any other configuration is
left to `decoder.models.hf_checkpoints`. Knows no files.
"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from decoder.forward.families.architecture import ROTARY, Architecture
from decoder.forward.families.registry import FAMILIES, runs
from decoder.forward.windows import FULL, SLIDING
from decoder.models.config_ranges import LARGEST
from decoder.system.device import DTYPES

Count = Annotated[int, Meta(ge=1, le=2**31)]
LayerCount = Annotated[int, Meta(ge=1, le=LARGEST["num_hidden_layers"])]
Number = Annotated[float, Meta(gt=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
Token = Annotated[int, Meta(ge=0, le=2**31)]
Dtype = Literal["float64", "float32", "bfloat16", "float16"]


class Known(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of JSON objects: an unknown field is refused, and a field without a default value is required."""


class Rope(Known, frozen=True):
    """Settings of rotary positions, in `rope_parameters` or `rope_scaling`."""

    rope_type: str | None = None
    type: str | None = None
    """Earlier name of `rope_type`."""
    rope_theta: Number | None = None
    partial_rotary_factor: Share | None = None
    factor: Number | None = None
    low_freq_factor: Number | None = None
    high_freq_factor: Number | None = None
    original_max_position_embeddings: Count | None = None


class Model(Known, frozen=True, kw_only=True, tag_field="model_type"):
    """Fields of config.json that all families have, with transformers' defaults."""

    vocab_size: Count
    hidden_size: Count
    num_hidden_layers: LayerCount
    num_attention_heads: Count
    intermediate_size: Count
    max_position_embeddings: Count
    hidden_act: str
    tie_word_embeddings: bool = False
    rope_parameters: Rope | None = None
    rope_scaling: Rope | None = None
    """Earlier name of `rope_parameters`."""
    dtype: Dtype | None = None
    torch_dtype: Dtype | None = None
    """Earlier name of `dtype`."""
    bos_token_id: Token | None = None
    eos_token_id: Token | list[Token] | None = None
    pad_token_id: Token | None = None
    architectures: list[str] | None = None
    # Fields that do not change the forward pass.
    attention_dropout: Share = 0.0
    initializer_range: Share = 0.0
    use_cache: bool = True
    transformers_version: str = ""
    name_or_path: str = msgspec.field(default="", name="_name_or_path")
    # Fields that change the forward pass unless they have their default values; flags must be false (`OFF`).
    output_attentions: bool = False
    output_hidden_states: bool = False
    is_encoder_decoder: bool = False
    is_decoder: bool = False
    chunk_size_feed_forward: Literal[0] = 0
    id2label: None = None
    label2id: None = None
    problem_type: None = None


class NeoX(Model, frozen=True, kw_only=True, tag="gpt_neox"):
    """config.json of GPT-NeoX models."""

    layer_norm_eps: Number
    attention_bias: bool = True
    use_parallel_residual: bool = True
    hidden_dropout: Share = 0.0
    classifier_dropout: Share = 0.0
    rotary_pct: Share | None = None
    rotary_emb_base: Number | None = None


class Llama(Model, frozen=True, kw_only=True, tag="llama"):
    """config.json of Llama models."""

    rms_norm_eps: Number
    rope_theta: Number | None = None
    num_key_value_heads: Count | None = None
    head_dim: Count | None = None
    attention_bias: bool = False
    mlp_bias: bool = False
    pretraining_tp: Literal[1] = 1


class Mistral(Model, frozen=True, kw_only=True, tag="mistral"):
    """config.json of Mistral models; if `sliding_window` is null, there is no window."""

    rms_norm_eps: Number
    rope_theta: Number | None = None
    num_key_value_heads: Count
    head_dim: Count | None = None
    sliding_window: Count | None = 4096


class Qwen2(Model, frozen=True, kw_only=True, tag="qwen2"):
    """config.json of Qwen2 models."""

    rms_norm_eps: Number
    rope_theta: Number | None = None
    num_key_value_heads: Count
    use_sliding_window: bool = False
    sliding_window: Count | None = 4096
    max_window_layers: Token = 28
    layer_types: list[Literal["full_attention", "sliding_attention"]] | None = None


class Qwen3(Model, frozen=True, kw_only=True, tag="qwen3"):
    """config.json of Qwen3 models."""

    rms_norm_eps: Number
    rope_theta: Number | None = None
    num_key_value_heads: Count
    head_dim: Count = 128
    attention_bias: bool = False
    use_sliding_window: bool = False
    sliding_window: Count | None = 4096
    max_window_layers: Token = 28
    layer_types: list[Literal["full_attention", "sliding_attention"]] | None = None


OFF = ("output_attentions", "output_hidden_states", "is_encoder_decoder", "is_decoder")
THETA, PARTIAL = 10000.0, 0.25
"""transformers' default values: `rope_theta`, and the share of rotated dimensions in GPT-NeoX."""


def decoded(content: bytes, kind: Any) -> Any:
    """Contents of a JSON file as an object of the type `kind`; None if the contents do not have this type."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def architecture(content: bytes) -> Architecture | None:
    """The architecture that a config.json describes; None if any part of it is unknown."""
    config: Any = decoded(content, NeoX | Llama | Mistral | Qwen2 | Qwen3)
    if config is None or any(getattr(config, name, False) for name in OFF) or not _fits(config):
        return None
    rope, layers, dtype = rotary(config), _windowed(config), config.dtype or config.torch_dtype
    if rope is None or layers is None:
        return None
    resolved = {"model_type": _kind(config), "rope_parameters": rope, "dtype": DTYPES[dtype] if dtype else None}
    arch = Architecture.of(SimpleNamespace(**msgspec.structs.asdict(config) | layers | resolved))
    return arch if runs(arch) and arch.head_dim % 2 == 0 else None


def _kind(config: Any) -> str:
    return str(config.__struct_config__.tag)


def _fits(config: Any) -> bool:
    """Whether the fields of a configuration are consistent with each other."""
    heads, name = config.num_attention_heads, FAMILIES[_kind(config)].name
    return (
        config.architectures in (None, [name])
        and config.hidden_size % heads == 0
        and heads % (getattr(config, "num_key_value_heads", None) or heads) == 0
        and (config.pad_token_id or 0) < config.vocab_size
    )


def _windowed(config: Any) -> dict[str, Any] | None:
    """Window size and layer types, with transformers' defaults for missing values; None if size and types are
    inconsistent.
    """
    size = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        first = getattr(config, "max_window_layers", 0) if size else config.num_hidden_layers
        kinds = [SLIDING if number >= first else FULL for number in range(config.num_hidden_layers)]
    if len(kinds) != config.num_hidden_layers or (SLIDING in kinds and not size):
        return None
    return {"sliding_window": size, "layer_types": kinds}


def rotary(config: Any) -> Mapping[str, Any] | None:
    """Settings of rotary positions under transformers' current names, even if the configuration has older names; None
    if a setting is unknown.
    """
    theta = getattr(config, "rotary_emb_base", None) or getattr(config, "rope_theta", None)
    share = getattr(config, "rotary_pct", None)
    if config.rope_parameters and (config.rope_scaling or theta or share):
        return None
    given = config.rope_parameters or config.rope_scaling or Rope()
    rope = {name: value for name, value in msgspec.structs.asdict(given).items() if value is not None}
    before = rope.pop("type", None)
    partly = {"partial_rotary_factor": PARTIAL if share is None else share} if isinstance(config, NeoX) else {}
    parameters = {"rope_type": before or "default", "rope_theta": theta or THETA, **partly, **rope}
    kind = parameters["rope_type"]
    named = {"rope_type", "rope_theta", *partly}
    known = before in (None, kind) and parameters.keys() == named | ROTARY.get(kind, frozenset({"no number"}))
    return parameters if known else None
