"""Fields of config.json that all published drafting heads share, and the architecture of their layers.

Fields without effect on a head are ignored, including `auto_map`, so the code that it names never runs. Knows no
weights.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from decoder.errors import ModelError, first_line, quoted
from decoder.forward.families.architecture import ROTARY, Architecture
from decoder.models.checkpoint_files import decoded
from decoder.models.config_ranges import LARGEST

Count = Annotated[int, Meta(ge=1, le=2**31)]
LayerCount = Annotated[int, Meta(ge=1, le=LARGEST["num_hidden_layers"])]
Number = Annotated[float, Meta(gt=0)]
Token = Annotated[int, Meta(ge=0, le=2**31)]
Fields = TypeVar("Fields")
REMEDY = "choose another --draft"
AGAIN = f"download the head again, or {REMEDY}"
QWEN3_HEAD = 128
THETA = 10000.0


class Kind(msgspec.Struct, frozen=True):
    architectures: list[str] | None = None
    speculators_model_type: str | None = None


class Rope(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    rope_type: str | None = None
    type: str | None = None
    """Earlier name of `rope_type`."""
    rope_theta: Number | None = None
    partial_rotary_factor: Annotated[float, Meta(ge=0, le=1)] | None = None
    factor: Number | None = None
    low_freq_factor: Number | None = None
    high_freq_factor: Number | None = None
    original_max_position_embeddings: Count | None = None


class LayerFields(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration fields of a head's decoder layers, with transformers' defaults."""

    vocab_size: Count
    hidden_size: Count
    num_attention_heads: Count
    intermediate_size: Count
    num_key_value_heads: Count | None = None
    head_dim: Count | None = None
    hidden_act: Literal["silu"] = "silu"
    max_position_embeddings: Count = 2048
    rms_norm_eps: Number = 1e-6
    rope_theta: Number | None = None
    rope_scaling: Rope | None = None
    """Earlier name of `rope_parameters`."""
    rope_parameters: Rope | None = None
    dtype: Literal["float64", "float32", "bfloat16", "float16"] | None = None


def kind_of(content: bytes) -> Kind:
    kind: Kind | None = decoded(content, Kind)
    return kind or Kind()


def fields_of(shown: str, kind: str, content: bytes, fields: type[Fields]) -> Fields:
    """Raises ModelError if a config.json is not that of a head of this kind."""
    try:
        return msgspec.json.decode(content, type=fields)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(
            f"the configuration of {shown} does not describe a supported {kind}: {first_line(error)}; {REMEDY}"
        ) from error


def architecture_of(name: str, layer: LayerFields, **resolved: Any) -> Architecture:
    """Architecture of a head's layers, with the values in `resolved`; raises ModelError for rotary positions of an
    unsupported kind, or sizes that do not fit each other.
    """
    fields = msgspec.structs.asdict(layer) | {"rope_parameters": _rotary(name, layer), "dtype": None} | resolved
    arch = Architecture.of(SimpleNamespace(**fields))
    if arch.num_attention_heads % arch.num_key_value_heads or arch.head_dim % 2:
        raise ModelError(
            f"the configuration of {name} has {arch.num_attention_heads} attention heads, "
            f"{arch.num_key_value_heads} key-value heads and heads of width {arch.head_dim}, which do not fit each "
            f"other; download the head again"
        )
    return arch


def ascending(name: str, field: str, layers: Sequence[int], written: object) -> tuple[int, ...] | None:
    """The target layers whose inputs a head reads; None if there are none, ModelError unless they ascend.

    `field` names the layers in the configuration, as `written`.
    """
    if any(low >= high for low, high in pairwise(layers)):
        raise ModelError(
            f"the configuration of {name} says that {field} is {quoted(written)}, but it must be in ascending order; "
            f"{AGAIN}"
        )
    return tuple(layers) or None


def _rotary(name: str, layer: LayerFields) -> Mapping[str, Any]:
    """Settings of rotary positions under transformers' current names, even if the configuration has older names."""
    given = layer.rope_parameters or layer.rope_scaling
    rope = {key: value for key, value in msgspec.structs.asdict(given or Rope()).items() if value is not None}
    before = rope.pop("type", None)
    parameters = {"rope_type": before or "default", "rope_theta": layer.rope_theta or THETA, **rope}
    kind = parameters["rope_type"]
    twice = layer.rope_parameters and (layer.rope_scaling or layer.rope_theta)
    named = {"rope_type", "rope_theta"} | ROTARY.get(kind, frozenset({"no number"}))
    if twice or before not in (None, kind) or parameters.keys() != named:
        raise ModelError(f"{name} has rotary positions of an unsupported kind, {quoted(given)}; {REMEDY}")
    return parameters
