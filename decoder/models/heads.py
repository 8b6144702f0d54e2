"""Configuration and loading of all kinds of drafting heads, and the kind of a draft from its name. Independent of how
heads draft.

A DFlash head's config.json has one of three published layouts. The layouts of z-lab and DeepSpec are flat; in z-lab's
layout, an object `dflash_config` has some of the fields, and takes precedence over fields of the same name outside it.
The layout of the speculators library has the fields of the layers within `transformer_layer_config`. A field that would
change the network in an unsupported way raises an error with its name.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from msgspec import Meta
from torch import Tensor

from decoder.errors import ConfigError, ModelError, PairError, quoted
from decoder.events import HeadKind
from decoder.forward.language_model import LanguageModel
from decoder.forward.layer_kinds import FULL, SLIDING
from decoder.heads.dflash import BlockHead
from decoder.heads.dflash_shape import BlockShape, Convolution, Markov, Selector, Swiglu
from decoder.heads.eagle3 import Head, HeadShape
from decoder.heads.parts import StatesReader
from decoder.models.checkpoint_files import content_of
from decoder.models.checkpoints import display_name
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
    config_of,
    fields_of,
    kind_of,
    shape_of,
)
from decoder.models.head_weights import TargetSizes, filled, fitting_layers, read_tensors
from decoder.models.mtp import MtpShape, load_mtp
from decoder.models.names import LOOKUP, MTP, require_model

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


AnyShape = HeadShape | BlockShape | MtpShape
EMBEDDING, OUTPUT = "embed_tokens.weight", "lm_head.weight"
PREDICTED_MASK = "mask_embedding.pt"
"""Pickled embedding of a DFlash head's mask token."""
UNUSED = re.compile(
    r"(^verifier_(norm|lm_head)\.weight|^confidence_head\.proj\.(weight|bias)|^t2d|rotary_emb\.inv_freq)$"
)
"""Names of tensors in published files that are not used, such as a confidence head: trees grow by probabilities."""


def head_shape(name: str) -> AnyShape | None:
    """Configuration of the head in a hub id or folder, or of the target's MTP layer if the name is "mtp"; None if the
    checkpoint is not a head. Raises ModelError for an invalid configuration.
    """
    if name == MTP:
        return MtpShape()
    shown, config = display_name(name), config_of(name)
    return shape_of(shown, config) or block_shape(shown, config)


def load_head(name: str, shape: AnyShape, target: LanguageModel, dtype: torch.dtype) -> StatesReader:
    """Loads the head of a hub id or folder onto the device of its target. For an MTP layer, `name` is the target's hub
    id or folder. If the files lack the embedding or a DFlash head's output head, the target's weights are used.

    Raises:
        ConfigError: The MTP layer is not supported; see `load_mtp`.
        ModelError: The head's weights cannot be read, or do not fit its configuration.
        PairError: The head was made for another target.
    """
    if isinstance(shape, MtpShape):
        return load_mtp(name, target, dtype)
    shown = display_name(name)
    layers = fitting_layers(
        shown, shape, TargetSizes(target.name, target.width, target.embedding.shape[1], target.layers)
    )
    if isinstance(shape, BlockShape) and content_of(name, PREDICTED_MASK) is not None:
        raise ModelError(f"{shown} has a file {PREDICTED_MASK}, but pickled files are not opened; {REMEDY}")
    tensors = read_tensors(name, shown, _own_name)
    if shape.layer.hidden_size == shape.target_width:
        tensors.setdefault(EMBEDDING, target.embedding)
    blocks = isinstance(shape, BlockShape)
    if blocks and OUTPUT not in tensors and shape.draft_vocabulary == shape.layer.vocab_size:
        tensors[OUTPUT] = _output_of(shown, target)
    with torch.device("meta"):
        head = BlockHead(shown, shape, layers) if isinstance(shape, BlockShape) else Head(shown, shape, layers)
    return filled(head, tensors, target.device, dtype)


def _output_of(shown: str, target: LanguageModel) -> Tensor:
    """The target's output head; raises PairError if it is quantised."""
    rows = target.output_head
    if not rows.is_floating_point():
        raise PairError(
            f"{shown} has no output head of its own, and the output head of {target.name} is quantised; choose a "
            "target with an output head that is not quantised, or another --draft"
        )
    return rows


def _own_name(there: str) -> str | None:
    key = there.removeprefix("model.").replace("midlayer.", "layers.0.")
    return None if UNUSED.search(key) else key.replace("_codebook.weight", "_codebook")


def head_kind(head: StatesReader) -> HeadKind:
    if isinstance(head, BlockHead):
        return "dflash"
    return "mtp" if head.name == MTP else "eagle3"


def is_model_free(draft: str | None) -> bool:
    """Whether the named draft is suffix lookup or a drafting head; None stands for the embedded draft.

    Raises ModelError for a head with an invalid configuration.
    """
    return draft == LOOKUP or (draft is not None and head_shape(draft) is not None)


def require_whole_draft(user: str, target: str | None, draft: str | None) -> None:
    """Raises ConfigError unless the draft is a whole model, which the option or method `user` needs."""
    require_model(user, target, draft)
    if draft is not None and (head := head_shape(draft)):
        raise ConfigError(
            f"{user} needs a whole model as draft, but {display_name(draft)} is a drafting head ({head.kind}); name a "
            "model with --draft"
        )
