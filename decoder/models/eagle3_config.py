"""Reads config.json of an EAGLE-3 head, in either published layout, as a `HeadShape`.

The flat layout, of the authors and SGLang, has the fields of the layer and of the head in one object. The nested
layout, of the speculators library, has the fields of the layer within `transformer_layer_config`. Knows no weights.
"""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from decoder.errors import ModelError
from decoder.heads.eagle3 import KIND, HeadShape
from decoder.models.checkpoint_files import content_of
from decoder.models.checkpoints import display_name
from decoder.models.head_config import (
    QWEN3_HEAD,
    REMEDY,
    Count,
    LayerCount,
    LayerFields,
    Token,
    architecture_of,
    ascending,
    fields_of,
    kind_of,
)

NESTED = "eagle3", "peagle"
"""Values of `speculators_model_type` that name EAGLE-3 and P-EAGLE heads."""
USUAL_GUESSES = 8
"""Number of tokens that a P-EAGLE head guesses in one pass if its configuration does not give the number."""


class Layer(LayerFields, frozen=True, kw_only=True):
    model_type: Literal["llama", "qwen3"] = "llama"
    num_hidden_layers: LayerCount = 1
    layer_types: list[Literal["full_attention"]] | None = None


class Nested(msgspec.Struct, frozen=True, kw_only=True):
    """The object `eagle_config` in a flat configuration."""

    eagle_aux_hidden_state_layer_ids: list[Token] | None = None
    use_aux_hidden_state: bool = True
    norm_before_fc: bool = False


class Proposals(msgspec.Struct, frozen=True):
    speculative_tokens: Count | None = None


class Speculation(msgspec.Struct, frozen=True):
    proposal_methods: list[Proposals] | None = None


class HeadFields(msgspec.Struct, frozen=True, kw_only=True):
    architectures: list[str] | None = None
    speculators_model_type: str | None = None
    transformer_layer_config: Layer | None = None
    draft_vocab_size: Count | None = None
    target_hidden_size: Count | None = None
    eagle_aux_hidden_state_layer_ids: list[Token] | None = None
    norm_before_residual: bool | None = None
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False
    eagle_config: Nested | None = None
    # Only P-EAGLE has the following fields: the token of mask rows, which has three published names, and the settings
    # with the number of guesses.
    mask_token_id: Token | None = None
    pard_token: Token | None = None
    ptd_token_id: Token | None = None
    speculators_config: Speculation | None = None


def head_shape(name: str) -> HeadShape | None:
    """The EAGLE-3 head in a hub id or folder; None if there is another checkpoint, ModelError if it is invalid."""
    content, shown = content_of(name, "config.json"), display_name(name)
    if content is None or not _is_head(content):
        return None
    return shape_of(shown, content)


def shape_of(shown: str, content: bytes) -> HeadShape:
    """The EAGLE-3 head of a config.json; `shown` is its name for messages. Raises ModelError if it is invalid."""
    fields = fields_of(shown, KIND, content, HeadFields)
    return _shape(shown, fields, fields.transformer_layer_config or fields_of(shown, KIND, content, Layer))


def _is_head(content: bytes) -> bool:
    kind = kind_of(content)
    named = any(_names(kind.architectures, word) for word in NESTED)
    return named or kind.speculators_model_type in NESTED


def _names(architectures: Sequence[str] | None, word: str) -> bool:
    return any(word in architecture.lower() for architecture in architectures or ())


def _shape(name: str, fields: HeadFields, layer: Layer) -> HeadShape:
    nested = fields.eagle_config or Nested()
    if not nested.use_aux_hidden_state:
        raise ModelError(
            f"{name} is an unsupported head: it reads only the last layer of its target, as heads before EAGLE-3 do; "
            f"{REMEDY}"
        )
    masks = (fields.mask_token_id, fields.pard_token, fields.ptd_token_id)
    mask = next((token for token in masks if token is not None), None)
    _check_masks(name, fields, layer, mask)
    # As in vLLM, `norm_before_residual` is true by default in the nested layout, and false by default in the flat
    # layout.
    by_default = fields.speculators_model_type is not None
    qwen3: dict[str, Any] = {"head_dim": layer.head_dim or QWEN3_HEAD} if layer.model_type == "qwen3" else {}
    return HeadShape(
        layer=architecture_of(name, layer, **qwen3),
        draft_vocabulary=fields.draft_vocab_size or layer.vocab_size,
        target_width=fields.target_hidden_size or layer.hidden_size,
        target_layers=_target_layers(name, fields, nested),
        norm_before_residual=by_default if fields.norm_before_residual is None else fields.norm_before_residual,
        norm_before_fc=fields.norm_before_fc or nested.norm_before_fc,
        fc_norm=fields.fc_norm,
        norm_output=fields.norm_output,
        normed_heads=layer.model_type == "qwen3",
        layers=layer.num_hidden_layers,
        guesses=1 if mask is None else _guesses(fields),
        mask_token=mask,
    )


def _guesses(fields: HeadFields) -> int:
    methods = fields.speculators_config and fields.speculators_config.proposal_methods
    return (methods[0].speculative_tokens if methods else None) or USUAL_GUESSES


def _check_masks(name: str, fields: HeadFields, layer: Layer, mask: int | None) -> None:
    if mask is None and (fields.speculators_model_type == "peagle" or _names(fields.architectures, "peagle")):
        raise ModelError(f"the configuration of {name} lacks mask_token_id, the token of its mask rows; {REMEDY}")
    if mask is None and layer.num_hidden_layers > 1:
        raise ModelError(
            f"the configuration of {name} says that num_hidden_layers is {layer.num_hidden_layers}, but EAGLE-3 heads "
            f"have one layer; {REMEDY}"
        )
    if mask is not None and mask >= layer.vocab_size:
        raise ModelError(
            f"the configuration of {name} names the mask token {mask}, but its vocabulary has only "
            f"{layer.vocab_size} tokens; {REMEDY}"
        )


def _target_layers(name: str, fields: HeadFields, nested: Nested) -> tuple[int, ...] | None:
    """Target layers whose inputs the head reads. `eagle_config` lists layers by their outputs, so 1 is added."""
    layers = fields.eagle_aux_hidden_state_layer_ids
    if not layers:
        layers = [layer + 1 for layer in nested.eagle_aux_hidden_state_layer_ids or ()]
    return ascending(name, "eagle_aux_hidden_state_layer_ids", layers, layers)
