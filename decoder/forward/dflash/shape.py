"""Configuration of a DFlash head: sizes, options, and the shape of every weight.

Names of weights are those of published checkpoints. Sources: the code of z-lab, speculators, DeepSpec and TreeFlash.
Knows no files.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from decoder.forward.families.architecture import Architecture
from decoder.forward.windows import SLIDING

Sizes = Mapping[str, tuple[int, ...]]
"""Shapes of weights by name."""


@dataclass(frozen=True)
class Markov:
    """DSpark's correction: adds a bias to a row's logits. The matrix that maps the previous token to the bias is a
    product of two factors of rank `rank`.
    """

    rank: int
    kind: Literal["vanilla", "gated", "rnn"] = "vanilla"
    """vanilla: the bias depends on the previous token only; gated: the token's embedding is scaled by a gate that also
    reads the row; rnn: the bias also depends on the row and on a recurrent state of the path.
    """


@dataclass(frozen=True)
class Selector:
    """DFlash2's correction: the `candidates` best tokens of a row are scored again, given the previous token."""

    rank: int
    candidates: int


@dataclass(frozen=True)
class Swiglu:
    """TreeFlash's correction: adds to each row a SwiGLU of two inputs, the previous token's embedding and that row."""


Correction = Markov | Selector | Swiglu


@dataclass(frozen=True)
class Convolution:
    """DFlash2's convolutions over the rows of a block, on the inputs and outputs of every layer's attention and MLP."""

    taps: int
    group: int
    """Number of adjacent dimensions that share the dynamic part of a kernel."""


@dataclass(frozen=True)
class BlockShape:
    """Configuration of a DFlash head."""

    kind: ClassVar[str] = "DFlash head"

    layer: Architecture
    """Architecture of the layers; `vocab_size` is the target's."""
    draft_vocabulary: int
    """Size of the head's own vocabulary, the tokens that it can predict."""
    block_size: int
    """Number of rows of a block: the text's last token, then mask tokens."""
    mask_token: int
    causal: tuple[bool, ...]
    """For each layer, whether attention within the block is causal; otherwise it is bidirectional."""
    target_layers: tuple[int, ...] | None = None
    """Numbers of the target layers whose inputs the head reads, ascending; if None, `usual_layers` chooses them."""
    from_anchor: bool = False
    """Whether a row predicts the token after its position. Otherwise it predicts the token at its position, and the
    first row, which is the text's last token, predicts no token.
    """
    fixed_window: bool = False
    """How a window applies in sliding layers. If true, all rows of a block see the same window of text, which ends
    before the block, and the window hides no row of the block. If false, each row has its own window.
    """
    embedding_scale: float = 1.0
    """Factor by which embedded tokens are multiplied."""
    output_scale: float = 1.0
    """Factor by which logits are multiplied."""
    softcap: float | None = None
    """Limit c of the logits, which become c tanh(x / c); None: no limit."""
    correction: Correction | None = None
    convolution: Convolution | None = None

    @property
    def guesses(self) -> int:
        """Number of tokens that a block predicts."""
        return self.block_size - (not self.from_anchor)

    @property
    def target_width(self) -> int:
        """Width of a hidden row of the target."""
        return self.layer.hidden_size

    @property
    def states(self) -> int:
        """Number of target states that are combined into one hidden row."""
        return self.layer.num_hidden_layers if self.target_layers is None else len(self.target_layers)

    @property
    def maps_tokens(self) -> bool:
        """Whether the head's token ids differ from the target's."""
        return self.draft_vocabulary != self.layer.vocab_size

    def window(self, layer: int) -> int | None:
        """Sliding window of a layer, in tokens; None if the layer attends to the whole text."""
        return self.layer.sliding_window if self.layer.layer_types[layer] == SLIDING else None

    def layers_of(self, target_layers: int) -> tuple[int, ...]:
        """The target layers whose inputs the head reads, if the target has `target_layers` layers."""
        return self.target_layers or usual_layers(target_layers, self.layer.num_hidden_layers)


def usual_layers(target_layers: int, layers: int) -> tuple[int, ...]:
    """Target layers whose inputs a head of `layers` layers reads if its configuration lists none. A head of several
    layers reads as many target layers as it has itself, evenly spaced from layer 2 to layer `target_layers` - 2. A head
    of one layer reads a layer in the middle.
    """
    if layers == 1:
        return (target_layers // 2 + 1,)
    return tuple(round(1 + place * (target_layers - 4) / (layers - 1)) + 1 for place in range(layers))


def shapes(shape: BlockShape) -> Sizes:
    """Shapes of all weights that a checkpoint must have, by name."""
    arch, width = shape.layer, (shape.layer.hidden_size,)
    weights: dict[str, tuple[int, ...]] = {
        "fc.weight": (*width, shape.states * shape.target_width),
        "hidden_norm.weight": width,
        "norm.weight": width,
    }
    for number in range(arch.num_hidden_layers):
        weights |= {f"layers.{number}.{name}": size for name, size in _layer_shapes(shape).items()}
    if shape.maps_tokens:
        weights |= {"lm_head.weight": (shape.draft_vocabulary, *width), "d2t": (shape.draft_vocabulary,)}
    return {**weights, **_correction_shapes(shape)}


def optional_shapes(shape: BlockShape) -> Sizes:
    """Shapes of optional weights, by name: embedding, output head, and maps between the head's and the target's token
    ids.
    """
    words, width = shape.layer.vocab_size, shape.layer.hidden_size
    return {
        "embed_tokens.weight": (words, width),
        "lm_head.weight": (shape.draft_vocabulary, width),
        "t2d": (words,),
        "d2t": (shape.draft_vocabulary,),
    }


def _layer_shapes(shape: BlockShape) -> Sizes:
    arch = shape.layer
    width, inner = arch.hidden_size, arch.intermediate_size
    queries, keys = (heads * arch.head_dim for heads in (arch.num_attention_heads, arch.num_key_value_heads))
    projections = {"q": (queries, width), "k": (keys, width), "v": (keys, width), "o": (width, queries)}
    sizes: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (width,),
        "post_attention_layernorm.weight": (width,),
        "self_attn.q_norm.weight": (arch.head_dim,),
        "self_attn.k_norm.weight": (arch.head_dim,),
        "mlp.gate_proj.weight": (inner, width),
        "mlp.up_proj.weight": (inner, width),
        "mlp.down_proj.weight": (width, inner),
    }
    sizes |= {f"self_attn.{part}_proj.weight": size for part, size in projections.items()}
    if arch.attention_bias:
        sizes |= {f"self_attn.{part}_proj.bias": size[:1] for part, size in projections.items()}
    if convolution := shape.convolution:
        dynamic = 2 * convolution.taps * width // convolution.group
        for part in ("attention_conv", "mlp_conv"):
            sizes[f"{part}.base_kernel"] = (2, convolution.taps, width)
            sizes[f"{part}.kernel_projection.weight"] = (dynamic, width)
    return sizes


def _correction_shapes(shape: BlockShape) -> Sizes:
    words, own, width = shape.layer.vocab_size, shape.draft_vocabulary, shape.layer.hidden_size
    match shape.correction:
        case Markov(rank, kind):
            inner = {"gated": ("gate_proj", rank, width + rank), "rnn": ("joint_proj", 3 * rank, width + 2 * rank)}
            sizes: dict[str, tuple[int, ...]] = {"markov_w1.weight": (words, rank), "markov_w2.weight": (own, rank)}
            if kind in inner:
                name, rows, columns = inner[kind]
                sizes |= {f"{name}.weight": (rows, columns), f"{name}.bias": (rows,)}
            return {f"markov_head.{name}": size for name, size in sizes.items()}
        case Selector(rank):
            return {
                "candidate_selector.predecessor_codebook": (words, rank),
                "candidate_selector.successor_codebook": (words, rank),
                "candidate_selector.hidden_projection.weight": (rank, width),
            }
        case Swiglu():
            inner_width = shape.layer.intermediate_size
            return {
                "ar_approximation.ug.weight": (2 * inner_width, 2 * width),
                "ar_approximation.ug.bias": (2 * inner_width,),
                "ar_approximation.d.weight": (width, inner_width),
                "ar_approximation.norm.weight": (width,),
            }
        case None:
            return {}
