"""Fields of config.json that all published drafting heads share, and the architecture of their layers.

Fields without effect on a head are ignored, including `auto_map`, so the code that it names never runs. Knows no
weights.
"""

from types import SimpleNamespace
from typing import Any, Literal, TypeVar

import msgspec

from decoder.errors import ModelError, first_line, quoted
from decoder.forward.families.architecture import Architecture
from decoder.models.known_config import Count, Dtype, Number, Rope, decoded, rotary

Fields = TypeVar("Fields")
REMEDY = "choose another --draft"
QWEN3_HEAD = 128
"""Default `head_dim` of a Qwen3 layer."""


class Kind(msgspec.Struct, frozen=True):
    """Fields that distinguish heads from other checkpoints, and kinds of heads from each other."""

    architectures: list[str] | None = None
    speculators_model_type: str | None = None


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
    rope_parameters: Rope | None = None
    dtype: Dtype | None = None


def kind_of(content: bytes) -> Kind:
    """Fields of a config.json that show the kind of a head; all None if the file is not a valid JSON object."""
    kind: Kind | None = decoded(content, Kind)
    return kind or Kind()


def fields_of(shown: str, kind: str, content: bytes, fields: type[Fields]) -> Fields:
    """Fields of a config.json; raises ModelError if they are not those of a head of this kind."""
    try:
        return msgspec.json.decode(content, type=fields)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(
            f"the configuration of {shown} does not describe a supported {kind}: {first_line(error)}; {REMEDY}"
        ) from error


def architecture_of(name: str, layer: LayerFields, **resolved: Any) -> Architecture:
    """Architecture of a head's layers; the values in `resolved` replace values of the configuration.

    Raises:
        ModelError: The rotary positions are of an unsupported kind, or sizes do not fit each other.
    """
    rope = rotary(layer)
    if rope is None:
        given = layer.rope_parameters or layer.rope_scaling
        raise ModelError(f"{name} has rotary positions of an unsupported kind, {quoted(given)}; {REMEDY}")
    fields = msgspec.structs.asdict(layer) | {"rope_parameters": rope, "dtype": None} | resolved
    arch = Architecture.of(SimpleNamespace(**fields))
    if arch.num_attention_heads % arch.num_key_value_heads or arch.head_dim % 2:
        raise ModelError(
            f"the configuration of {name} has {arch.num_attention_heads} attention heads, "
            f"{arch.num_key_value_heads} key-value heads and heads of width {arch.head_dim}, which do not fit each "
            f"other; download the head again"
        )
    return arch
