"""Reads config.json of a DFlash head, in any of three published layouts, as a `BlockShape`.

The layouts of z-lab and DeepSpec are flat. In z-lab's layout, some fields are in an object `dflash_config`; these take
precedence over fields of the same name outside the object. The layout of the speculators library has the fields of the
layers within `transformer_layer_config`. A field that would change the network in an unsupported way raises an error
with its name. Reads no weights.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta

from decoder.errors import ModelError, quoted
from decoder.forward.layer_kinds import FULL, SLIDING
from decoder.heads.dflash_shape import BlockShape, Convolution, Markov, Selector, Swiglu
from decoder.models.head_config import (
    AGAIN,
    LAYERS,
    QWEN3_HEAD,
    REMEDY,
    Count,
    HeadFields,
    Kind,
    LayerCount,
    Token,
    architecture_of,
    ascending,
    fields_of,
    kind_of,
)

REFUSED = re.compile(
    r"(\w*attention_sink_bias|attention_value_scale|quantization_config|lilicorr_\w+|\w*xpress\w*|draft_shift"
    r"|shift_label)"
)
"""Fields that must be absent, null, false or 0."""
USUAL: Mapping[str, Any] = {"is_neox_style": True, "projector_type": "dflash"}
"""Fields that must be absent, null, or equal to these values."""
INNER = (LAYERS, "treeflash_config", "dflash_config")
"""Objects in a configuration that may have fields of the head, in ascending order of precedence."""


class BlockFields(HeadFields, frozen=True, kw_only=True):
    """Configuration fields of a DFlash head; layers are Qwen3 layers whatever `model_type` says."""

    model_type: str = "qwen3"
    num_hidden_layers: LayerCount
    attention_bias: bool = False
    layer_types: list[Literal["full_attention", "sliding_attention"]] | None = None
    sliding_window: Count | None = None
    target_layer_ids: list[Annotated[int, Meta(ge=-1)]] | None = None
    """Target layers whose outputs the head reads; -1 for the embedded tokens."""
    aux_hidden_state_layer_ids: list[Token] | None = None
    """Target layers whose inputs the head reads."""
    block_size: Count | None = None
    sample_from_anchor: bool | None = None
    is_causal: bool | None = None
    causal: bool | None = None
    causal_head: bool | None = None
    sliding_window_non_causal: bool | None = None
    input_embedding_scale: float | None = None
    output_multiplier: float | None = None
    final_logit_softcapping: float | None = None
    markov_rank: Token | None = None
    markov_head_type: Literal["vanilla", "gated", "rnn"] | None = None
    conv_kernel_size: Count | None = None
    conv_group_size: Count | None = None
    selector_rank: Count | None = None
    selector_top_k: Count | None = None
    ar_approximation: Literal["swiglu"] | None = None


@dataclass(frozen=True)
class Dialect:
    """Properties of all heads that have the same architecture name or `speculators_model_type`."""

    defaults: Mapping[str, Any]
    """Default values of configuration fields."""
    corrections: tuple[str, ...] = ()
    """Optional parts of the network, each named by the first word of its configuration fields."""
    fixed_window: bool = False
    """See `BlockShape`."""


ZLAB = {"block_size": 16, "sample_from_anchor": False}
SPECULATORS = {"block_size": 8, "sample_from_anchor": False, "sliding_window_non_causal": False}
DFLASH2 = {
    "sliding_window_non_causal": True,
    "conv_kernel_size": 2,
    "conv_group_size": 16,
    "selector_rank": 256,
    "selector_top_k": 16,
}
ARCHITECTURES: Mapping[str, Dialect] = {
    "DFlashDraftModel": Dialect(ZLAB),
    "DFlash2DraftModel": Dialect(ZLAB, ("conv", "selector")),
    "TreeFlashDraftModel": Dialect(ZLAB, ("ar",)),
    "Qwen3DSparkModel": Dialect({"sample_from_anchor": True, "markov_rank": 0}, ("markov",)),
}
"""Flat layouts by architecture name: Qwen3DSparkModel of DeepSpec, TreeFlashDraftModel of TreeFlash, the others of
z-lab.
"""
TYPES: Mapping[str, Dialect] = {
    "dflash": Dialect(SPECULATORS, fixed_window=True),
    "dflash2": Dialect(SPECULATORS | DFLASH2, ("conv", "selector"), fixed_window=True),
    "dspark": Dialect(SPECULATORS | {"sample_from_anchor": True, "markov_rank": 256}, ("markov",), fixed_window=True),
}
"""Layouts of the speculators library, by `speculators_model_type`."""


def block_shape(shown: str, config: Mapping[str, Any]) -> BlockShape | None:
    """The DFlash head with this configuration; None for other configurations. `shown` is its name for messages. Raises
    ModelError if the head is invalid or unsupported.
    """
    dialect = _dialect(kind_of(config))
    if dialect is None:
        return None
    for field, value in _entries(config):
        if value is not None and ((REFUSED.fullmatch(field) and value) or USUAL.get(field, value) != value):
            raise ModelError(
                f"the configuration of {shown} says that {field} is {quoted(value)}, which is not supported; {REMEDY}"
            )
    given = {**dialect.defaults, **{field: value for field, value in config.items() if value is not None}}
    return _shape(shown, dialect, fields_of(shown, BlockShape.kind, given, BlockFields, *INNER))


def _dialect(kind: Kind) -> Dialect | None:
    if kind.speculators_model_type is not None:
        return TYPES.get(kind.speculators_model_type)
    return next((ARCHITECTURES[name] for name in kind.architectures or () if name in ARCHITECTURES), None)


def _entries(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for field, value in fields.items():
        yield field, value
        if isinstance(value, dict):
            yield from _entries(value)


def _shape(name: str, dialect: Dialect, fields: BlockFields) -> BlockShape:
    def needed(field: str) -> Any:
        value = getattr(fields, field)
        if value is None:
            raise ModelError(f"the configuration of {name} lacks {field}; {AGAIN}")
        return value

    types: Sequence[str] = fields.layer_types or (FULL,) * fields.num_hidden_layers
    if len(types) != fields.num_hidden_layers or (SLIDING in types and not fields.sliding_window):
        raise ModelError(
            f"the configuration of {name} has {fields.num_hidden_layers} layers, {len(types)} layer types and a "
            f"sliding window of {fields.sliding_window or 0} tokens, which do not fit each other; {AGAIN}"
        )
    width = fields.hidden_size
    if fields.target_hidden_size not in (None, width):
        raise ModelError(
            f"{name} reads hidden rows of width {fields.target_hidden_size} with layers of width {width}, which is "
            f"not supported; {REMEDY}"
        )
    head_dim = QWEN3_HEAD if fields.model_type == "qwen3" else width // fields.num_attention_heads
    convolves = "conv" in dialect.corrections
    shape = BlockShape(
        layer=architecture_of(name, fields, head_dim=fields.head_dim or head_dim, layer_types=types),
        draft_vocabulary=fields.draft_vocab_size or fields.vocab_size,
        target_width=width,
        block_size=needed("block_size"),
        mask_token=needed("mask_token_id"),
        causal=_causal(fields, types),
        target_layers=_target_layers(name, dialect, fields),
        from_anchor=bool(fields.sample_from_anchor),
        fixed_window=dialect.fixed_window,
        embedding_scale=1.0 if fields.input_embedding_scale is None else fields.input_embedding_scale,
        output_scale=1.0 if fields.output_multiplier is None else fields.output_multiplier,
        softcap=fields.final_logit_softcapping or None,
        correction=_correction(dialect, fields, needed),
        convolution=Convolution(needed("conv_kernel_size"), needed("conv_group_size")) if convolves else None,
    )
    _check_sizes(name, shape)
    return shape


def _causal(fields: BlockFields, types: Sequence[str]) -> tuple[bool, ...]:
    if fields.sliding_window_non_causal is not None:
        return tuple(kind == SLIDING and not fields.sliding_window_non_causal for kind in types)
    named = (fields.is_causal, fields.causal, fields.causal_head)
    given = next((causal for causal in named if causal is not None), None)
    return tuple(kind == SLIDING if given is None else given for kind in types)


def _target_layers(name: str, dialect: Dialect, fields: BlockFields) -> tuple[int, ...] | None:
    """Target layers whose inputs the head reads. Flat configurations list layers by their outputs, so 1 is added."""
    if dialect.fixed_window:
        field, layers = "aux_hidden_state_layer_ids", fields.aux_hidden_state_layer_ids
        if not layers:
            raise ModelError(f"the configuration of {name} lacks {field}; {AGAIN}")
    else:
        field, layers = "target_layer_ids", [layer + 1 for layer in fields.target_layer_ids or ()]
    return ascending(name, field, layers, getattr(fields, field))


def _correction(dialect: Dialect, fields: BlockFields, needed: Any) -> Markov | Selector | Swiglu | None:
    if "markov" in dialect.corrections and fields.markov_rank:
        return Markov(fields.markov_rank, fields.markov_head_type or "vanilla")
    if "selector" in dialect.corrections:
        return Selector(needed("selector_rank"), needed("selector_top_k"))
    return Swiglu() if "ar" in dialect.corrections and fields.ar_approximation else None


def _check_sizes(name: str, shape: BlockShape) -> None:
    words, width = shape.draft_vocabulary, shape.layer.hidden_size
    correction, convolution = shape.correction, shape.convolution
    for wrong, said in (
        (shape.guesses < 1, f"a block of {shape.block_size} row, which predicts no token"),
        (
            shape.mask_token >= shape.layer.vocab_size,
            f"mask token {shape.mask_token}, which is outside its vocabulary of {shape.layer.vocab_size} tokens",
        ),
        (
            words > shape.layer.vocab_size,
            f"draft_vocab_size {words}, which is more than the {shape.layer.vocab_size} tokens of the target",
        ),
        (
            isinstance(correction, Selector) and words < shape.layer.vocab_size,
            f"a selector for only {words} of the target's {shape.layer.vocab_size} tokens",
        ),
        (
            isinstance(correction, Selector) and correction.candidates > words,
            f"a selector_top_k that is greater than its draft vocabulary of {words} tokens",
        ),
        (
            convolution is not None and width % convolution.group > 0,
            f"rows of width {width}, which cannot be divided into groups of {convolution.group if convolution else 1}",
        ),
    ):
        if wrong:
            raise ModelError(f"the configuration of {name} has {said}; {AGAIN}")
