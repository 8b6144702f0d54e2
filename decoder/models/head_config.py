"""Configurations of drafting heads: the fields that all published heads share, and the fields of EAGLE-3 and P-EAGLE
heads. Reads no weights.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from decoder.errors import ModelError, first_line, quoted
from decoder.forward.families.architecture import ROTARY, Architecture
from decoder.heads.eagle3 import KIND, HeadShape
from decoder.models.checkpoint_files import LARGEST, content_of, decoded

Count = Annotated[int, Meta(ge=1, le=2**31)]
LayerCount = Annotated[int, Meta(ge=1, le=LARGEST["num_hidden_layers"])]
Number = Annotated[float, Meta(gt=0)]
Token = Annotated[int, Meta(ge=0, le=2**31)]
Fields = TypeVar("Fields")
REMEDY = "choose another --draft"
AGAIN = f"download the head again, or {REMEDY}"
QWEN3_HEAD = 128
THETA = 10000.0
LAYERS = "transformer_layer_config"
"""Object with the fields of the layers, in the layouts of the speculators library."""


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


class HeadFields(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration fields of all heads: fields of the decoder layers, with transformers' defaults, and at the end the
    head's own vocabulary size, the width of the target's hidden rows, and the token of mask rows.
    """

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
    draft_vocab_size: Count | None = None
    target_hidden_size: Count | None = None
    mask_token_id: Token | None = None


def config_of(name: str) -> dict[str, Any]:
    """Contents of a checkpoint's config.json; empty if the file is missing or is no JSON object."""
    config: dict[str, Any] | None = decoded(content_of(name, "config.json") or b"", dict[str, Any])
    return config or {}


def kind_of(config: Mapping[str, Any]) -> Kind:
    try:
        return msgspec.convert(config, Kind)
    except msgspec.ValidationError:
        return Kind()


def fields_of(shown: str, kind: str, config: Mapping[str, Any], fields: type[Fields], *inner: str) -> Fields:
    """Fields of a head's configuration. A field in an object named in `inner` takes precedence over a field of the same
    name outside the object or in an earlier object. Raises ModelError if a value has the wrong type.
    """
    objects = [given for name in inner if isinstance(given := config.get(name), dict)]
    # If the layers have an object of their own, `model_type` outside it does not name the type of the layers.
    given = {field: value for field, value in config.items() if field != "model_type" or LAYERS not in config}
    for each in objects:
        given |= {field: value for field, value in each.items() if value is not None}
    try:
        return msgspec.convert(given, fields)
    except msgspec.ValidationError as error:
        raise ModelError(
            f"the configuration of {shown} does not describe a supported {kind}: {first_line(error)}; {REMEDY}"
        ) from error


def architecture_of(name: str, layer: HeadFields, **resolved: Any) -> Architecture:
    """Architecture of a head's layers; `resolved` replaces values of `layer`. Raises ModelError for an unsupported kind
    of RoPE, or sizes that do not fit each other.
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
    """Target layers whose inputs a head reads; None if `layers` is empty. Raises ModelError unless `layers` ascends.

    `field` is the configuration field that lists the layers, and `written` is its value.
    """
    if any(low >= high for low, high in pairwise(layers)):
        raise ModelError(
            f"the configuration of {name} says that {field} is {quoted(written)}, but it must be in ascending order; "
            f"{AGAIN}"
        )
    return tuple(layers) or None


def _rotary(name: str, layer: HeadFields) -> Mapping[str, Any]:
    """RoPE settings under transformers' current names, even if the configuration has older names."""
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


NESTED = "eagle3", "peagle"
"""Values of `speculators_model_type` that name EAGLE-3 and P-EAGLE heads."""
USUAL_GUESSES = 8
"""Number of tokens that a P-EAGLE head guesses in one pass if its configuration does not give the number."""


class Nested(msgspec.Struct, frozen=True, kw_only=True):
    """The object `eagle_config` in a flat configuration."""

    eagle_aux_hidden_state_layer_ids: list[Token] | None = None
    use_aux_hidden_state: bool = True
    norm_before_fc: bool = False


class Proposals(msgspec.Struct, frozen=True):
    speculative_tokens: Count | None = None


class Speculation(msgspec.Struct, frozen=True):
    proposal_methods: list[Proposals] | None = None


class GuidedFields(HeadFields, frozen=True, kw_only=True):
    """Configuration fields of an EAGLE-3 or P-EAGLE head."""

    model_type: Literal["llama", "qwen3"] = "llama"
    num_hidden_layers: LayerCount = 1
    layer_types: list[Literal["full_attention"]] | None = None
    eagle_aux_hidden_state_layer_ids: list[Token] | None = None
    norm_before_residual: bool | None = None
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False
    eagle_config: Nested | None = None
    # Only P-EAGLE has the following fields: other published names of `mask_token_id`, the token of mask rows, and the
    # settings with the number of guesses.
    pard_token: Token | None = None
    ptd_token_id: Token | None = None
    speculators_config: Speculation | None = None


def shape_of(shown: str, config: Mapping[str, Any]) -> HeadShape | None:
    """The EAGLE-3 or P-EAGLE head with this configuration; None for other configurations. `shown` is its name for
    messages. Raises ModelError for an invalid head.
    """
    kind = kind_of(config)
    named = [word for word in NESTED if any(word in name.lower() for name in kind.architectures or ())]
    if kind.speculators_model_type in NESTED:
        named.append(kind.speculators_model_type)
    if not named:
        return None
    fields = fields_of(shown, KIND, config, GuidedFields, LAYERS)
    nested = fields.eagle_config or Nested()
    if not nested.use_aux_hidden_state:
        raise ModelError(
            f"{shown} is an unsupported head: it reads only the last layer of its target, as heads before EAGLE-3 do; "
            f"{REMEDY}"
        )
    masks = (fields.mask_token_id, fields.pard_token, fields.ptd_token_id)
    mask = next((token for token in masks if token is not None), None)
    _check_masks(shown, fields, mask, parallel="peagle" in named)
    # As in vLLM, `norm_before_residual` is true by default in the nested layout, and false by default in the flat
    # layout.
    by_default = kind.speculators_model_type is not None
    qwen3: dict[str, Any] = {"head_dim": fields.head_dim or QWEN3_HEAD} if fields.model_type == "qwen3" else {}
    return HeadShape(
        layer=architecture_of(shown, fields, **qwen3),
        draft_vocabulary=fields.draft_vocab_size or fields.vocab_size,
        target_width=fields.target_hidden_size or fields.hidden_size,
        target_layers=_target_layers(shown, fields, nested),
        norm_before_residual=by_default if fields.norm_before_residual is None else fields.norm_before_residual,
        norm_before_fc=fields.norm_before_fc or nested.norm_before_fc,
        fc_norm=fields.fc_norm,
        norm_output=fields.norm_output,
        normed_heads=fields.model_type == "qwen3",
        layers=fields.num_hidden_layers,
        guesses=1 if mask is None else _guesses(fields),
        mask_token=mask,
    )


def _guesses(fields: GuidedFields) -> int:
    methods = fields.speculators_config and fields.speculators_config.proposal_methods
    return (methods[0].speculative_tokens if methods else None) or USUAL_GUESSES


def _check_masks(name: str, fields: GuidedFields, mask: int | None, *, parallel: bool) -> None:
    if mask is None and parallel:
        raise ModelError(f"the configuration of {name} lacks mask_token_id, the token of its mask rows; {REMEDY}")
    if mask is None and fields.num_hidden_layers > 1:
        raise ModelError(
            f"the configuration of {name} says that num_hidden_layers is {fields.num_hidden_layers}, but EAGLE-3 heads "
            f"have one layer; {REMEDY}"
        )
    if mask is not None and mask >= fields.vocab_size:
        raise ModelError(
            f"the configuration of {name} names the mask token {mask}, but its vocabulary has only "
            f"{fields.vocab_size} tokens; {REMEDY}"
        )


def _target_layers(name: str, fields: GuidedFields, nested: Nested) -> tuple[int, ...] | None:
    """Target layers whose inputs the head reads. `eagle_config` lists layers by their outputs, so 1 is added."""
    layers = fields.eagle_aux_hidden_state_layer_ids
    if not layers:
        layers = [layer + 1 for layer in nested.eagle_aux_hidden_state_layer_ids or ()]
    return ascending(name, "eagle_aux_hidden_state_layer_ids", layers, layers)
