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

import msgspec
from msgspec import Meta

from decoder.errors import ModelError, quoted
from decoder.forward.layer_kinds import FULL, SLIDING
from decoder.heads.dflash_shape import BlockShape, Convolution, Correction, Markov, Selector, Swiglu
from decoder.models.checkpoint_files import content_of
from decoder.models.checkpoints import display_name
from decoder.models.head_config import (
    AGAIN,
    QWEN3_HEAD,
    REMEDY,
    Count,
    Kind,
    LayerCount,
    LayerFields,
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


class Layers(LayerFields, frozen=True, kw_only=True):
    """Configuration fields of the head's layers, which are Qwen3 layers whatever `model_type` says."""

    model_type: str = "qwen3"
    num_hidden_layers: LayerCount
    attention_bias: bool = False
    layer_types: list[Literal["full_attention", "sliding_attention"]] | None = None
    sliding_window: Count | None = None


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration fields of the head; a field that the configuration lacks is None."""

    target_layer_ids: list[Annotated[int, Meta(ge=-1)]] | None = None
    """Target layers whose outputs the head reads; -1 for the embedded tokens."""
    aux_hidden_state_layer_ids: list[Token] | None = None
    """Target layers whose inputs the head reads."""
    mask_token_id: Token | None = None
    block_size: Count | None = None
    draft_vocab_size: Count | None = None
    target_hidden_size: Count | None = None
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


class Nested(msgspec.Struct, frozen=True, kw_only=True):
    dflash_config: Options | None = None
    treeflash_config: Options | None = None
    transformer_layer_config: Layers | None = None


@dataclass(frozen=True)
class Dialect:
    """Properties of all heads that have the same architecture name or `speculators_model_type`."""

    options: Options
    """Default values of configuration fields."""
    corrections: tuple[str, ...] = ()
    """Optional parts of the network, each named by the first word of its configuration fields."""
    fixed_window: bool = False
    """See `BlockShape`."""


ZLAB = Options(block_size=16, sample_from_anchor=False)
SPECULATORS = Options(block_size=8, sample_from_anchor=False, sliding_window_non_causal=False)
ARCHITECTURES: Mapping[str, Dialect] = {
    "DFlashDraftModel": Dialect(ZLAB),
    "DFlash2DraftModel": Dialect(ZLAB, ("conv", "selector")),
    "TreeFlashDraftModel": Dialect(ZLAB, ("ar",)),
    "Qwen3DSparkModel": Dialect(Options(sample_from_anchor=True, markov_rank=0), ("markov",)),
}
"""Flat layouts by architecture name: Qwen3DSparkModel of DeepSpec, TreeFlashDraftModel of TreeFlash, the others of
z-lab.
"""
TYPES: Mapping[str, Dialect] = {
    "dflash": Dialect(SPECULATORS, fixed_window=True),
    "dflash2": Dialect(
        msgspec.structs.replace(
            SPECULATORS,
            sliding_window_non_causal=True,
            conv_kernel_size=2,
            conv_group_size=16,
            selector_rank=256,
            selector_top_k=16,
        ),
        ("conv", "selector"),
        fixed_window=True,
    ),
    "dspark": Dialect(
        msgspec.structs.replace(SPECULATORS, sample_from_anchor=True, markov_rank=256), ("markov",), fixed_window=True
    ),
}
"""Layouts of the speculators library, by `speculators_model_type`."""


def block_shape(name: str) -> BlockShape | None:
    """The DFlash head in a hub id or folder; None if the checkpoint is no DFlash head. Raises ModelError if the head is
    invalid or unsupported.
    """
    content, shown = content_of(name, "config.json"), display_name(name)
    dialect = None if content is None else _dialect(kind_of(content))
    if content is None or dialect is None:
        return None
    nested = fields_of(shown, BlockShape.kind, content, Nested)
    _refuse(shown, content)
    own = [fields_of(shown, BlockShape.kind, content, Options), nested.treeflash_config, nested.dflash_config]
    options = dialect.options
    for given in filter(None, own):
        there = {field: value for field, value in msgspec.structs.asdict(given).items() if value is not None}
        options = msgspec.structs.replace(options, **there)
    layers = nested.transformer_layer_config or fields_of(shown, BlockShape.kind, content, Layers)
    return _shape(shown, dialect, options, layers)


def _dialect(kind: Kind) -> Dialect | None:
    if kind.speculators_model_type is not None:
        return TYPES.get(kind.speculators_model_type)
    return next((ARCHITECTURES[name] for name in kind.architectures or () if name in ARCHITECTURES), None)


def _refuse(name: str, content: bytes) -> None:
    for field, value in _entries(msgspec.json.decode(content)):
        if value is not None and ((REFUSED.fullmatch(field) and value) or USUAL.get(field, value) != value):
            raise ModelError(
                f"the configuration of {name} says that {field} is {quoted(value)}, which is not supported; {REMEDY}"
            )


def _entries(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for field, value in fields.items():
        yield field, value
        if isinstance(value, dict):
            yield from _entries(value)


def _shape(name: str, dialect: Dialect, options: Options, layers: Layers) -> BlockShape:
    def needed(field: str) -> Any:
        value = getattr(options, field)
        if value is None:
            raise ModelError(f"the configuration of {name} lacks {field}; {AGAIN}")
        return value

    types: Sequence[str] = layers.layer_types or (FULL,) * layers.num_hidden_layers
    if len(types) != layers.num_hidden_layers or (SLIDING in types and not layers.sliding_window):
        raise ModelError(
            f"the configuration of {name} has {layers.num_hidden_layers} layers, {len(types)} layer types and a "
            f"sliding window of {layers.sliding_window or 0} tokens, which do not fit each other; {AGAIN}"
        )
    width = layers.hidden_size
    if options.target_hidden_size not in (None, width):
        raise ModelError(
            f"{name} reads hidden rows of width {options.target_hidden_size} with layers of width {width}, which is "
            f"not supported; {REMEDY}"
        )
    head_dim = QWEN3_HEAD if layers.model_type == "qwen3" else width // layers.num_attention_heads
    shape = BlockShape(
        layer=architecture_of(name, layers, head_dim=layers.head_dim or head_dim, layer_types=types),
        draft_vocabulary=options.draft_vocab_size or layers.vocab_size,
        block_size=needed("block_size"),
        mask_token=needed("mask_token_id"),
        causal=_causal(options, types),
        target_layers=_target_layers(name, dialect, options),
        from_anchor=bool(options.sample_from_anchor),
        fixed_window=dialect.fixed_window,
        embedding_scale=1.0 if options.input_embedding_scale is None else options.input_embedding_scale,
        output_scale=1.0 if options.output_multiplier is None else options.output_multiplier,
        softcap=options.final_logit_softcapping or None,
        correction=_correction(dialect, options, needed),
        convolution=Convolution(needed("conv_kernel_size"), needed("conv_group_size"))
        if "conv" in dialect.corrections
        else None,
    )
    _check_sizes(name, shape)
    return shape


def _causal(options: Options, types: Sequence[str]) -> tuple[bool, ...]:
    if options.sliding_window_non_causal is not None:
        return tuple(kind == SLIDING and not options.sliding_window_non_causal for kind in types)
    named = (options.is_causal, options.causal, options.causal_head)
    given = next((causal for causal in named if causal is not None), None)
    return tuple(kind == SLIDING if given is None else given for kind in types)


def _target_layers(name: str, dialect: Dialect, options: Options) -> tuple[int, ...] | None:
    """Target layers whose inputs the head reads. Flat configurations list layers by their outputs, so 1 is added."""
    if dialect.fixed_window:
        field, layers = "aux_hidden_state_layer_ids", options.aux_hidden_state_layer_ids
        if not layers:
            raise ModelError(f"the configuration of {name} lacks {field}; {AGAIN}")
    else:
        field, layers = "target_layer_ids", [layer + 1 for layer in options.target_layer_ids or ()]
    return ascending(name, field, layers, getattr(options, field))


def _correction(dialect: Dialect, options: Options, needed: Any) -> Correction | None:
    if "markov" in dialect.corrections and options.markov_rank:
        return Markov(options.markov_rank, options.markov_head_type or "vanilla")
    if "selector" in dialect.corrections:
        return Selector(needed("selector_rank"), needed("selector_top_k"))
    return Swiglu() if "ar" in dialect.corrections and options.ar_approximation else None


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
