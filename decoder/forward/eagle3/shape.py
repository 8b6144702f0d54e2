"""Configuration of an EAGLE-3 or P-EAGLE head: sizes, options, and the shape of every weight.

Names of weights are those of published checkpoints. Source: EAGLE-3 (arXiv 2503.01840), section 3; some options are
from EAGLE-3.1, and mask rows from P-EAGLE (arXiv 2602.01469). Knows no files.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from decoder.forward.families.architecture import Architecture

KIND, PARALLEL_KIND = "EAGLE-3 head", "P-EAGLE head"
LAYER = "layers.0"
"""Prefix of the names of the first layer's weights."""
MASK = "mask_hidden"
"""Name of the weight that P-EAGLE's mask rows read in place of target states."""
USUAL_STATES = 3
"""Number of target layers whose inputs a head reads if its configuration does not list any."""


@dataclass(frozen=True)
class HeadShape:
    """Configuration of an EAGLE-3 or P-EAGLE head."""

    layer: Architecture
    """Architecture of the head's layers; `vocab_size` is the target's."""
    draft_vocabulary: int
    """Size of the head's own vocabulary, the tokens that it can predict."""
    target_width: int
    """Width of a hidden row of the target."""
    target_layers: tuple[int, ...] | None = None
    """Numbers of the target layers whose inputs the head reads, ascending; if None, `usual_layers` chooses them."""
    norm_before_residual: bool = False
    """Whether the residual starts from the normalised hidden row; otherwise it starts from the hidden row itself."""
    norm_before_fc: bool = False
    """Whether the concatenated target states are normalised before the first linear layer."""
    fc_norm: bool = False
    """Whether each target state is normalised separately."""
    norm_output: bool = False
    """Whether the hidden input of a drafted row is its parent's normalised output; if not, it is the raw output."""
    normed_heads: bool = False
    """Whether queries and keys are normalised head by head, as in Qwen3."""
    layers: int = 1
    """Number of the head's layers; all but the first are plain layers of Llama or Qwen3."""
    guesses: int = 1
    """Number of levels that a pass over the text predicts: 1, and one more for each of P-EAGLE's mask rows."""
    mask_token: int | None = None
    """Token of P-EAGLE's mask rows; None in an EAGLE-3 head, which has no mask rows."""

    @property
    def kind(self) -> str:
        """Kind of the head in words."""
        return PARALLEL_KIND if self.parallel else KIND

    @property
    def parallel(self) -> bool:
        """Whether one pass over the text predicts all levels of a tree, as in P-EAGLE."""
        return self.mask_token is not None

    @property
    def states(self) -> int:
        """Number of target states that are combined into one hidden row."""
        return USUAL_STATES if self.target_layers is None else len(self.target_layers)

    @property
    def maps_tokens(self) -> bool:
        """Whether the head's token ids differ from the target's."""
        return self.draft_vocabulary != self.layer.vocab_size

    def layers_of(self, target_layers: int) -> tuple[int, ...]:
        """The target layers whose inputs the head reads, if the target has `target_layers` layers."""
        return self.target_layers or usual_layers(target_layers)


def usual_layers(layers: int) -> tuple[int, ...]:
    """Target layers whose inputs a head reads if its configuration lists none: a low, a middle and a high layer."""
    return 2, layers // 2, layers - 3


def shapes(shape: HeadShape) -> Mapping[str, tuple[int, ...]]:
    """Shapes of all weights that a checkpoint must have, by name."""
    arch, seen = shape.layer, shape.states * shape.target_width
    width, inner = arch.hidden_size, arch.intermediate_size
    queries, keys = (heads * arch.head_dim for heads in (arch.num_attention_heads, arch.num_key_value_heads))
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm": (width,),
        "self_attn.q_proj": (queries, width),
        "self_attn.k_proj": (keys, width),
        "self_attn.v_proj": (keys, width),
        "self_attn.o_proj": (width, queries),
        "post_attention_layernorm": (width,),
        "mlp.gate_proj": (inner, width),
        "mlp.up_proj": (inner, width),
        "mlp.down_proj": (width, inner),
    }
    if shape.normed_heads:
        layer |= {"self_attn.q_norm": (arch.head_dim,), "self_attn.k_norm": (arch.head_dim,)}
    # The first layer reads the embedded token and the hidden row side by side, so its matrices are twice as wide.
    first = {f"self_attn.{part}_proj": (size, 2 * width) for part, size in (("q", queries), ("k", keys), ("v", keys))}
    layers = [layer | first | {"hidden_norm": (width,)}, *[layer] * (shape.layers - 1)]
    weights: dict[str, tuple[int, ...]] = {"fc.weight": (width, seen)}
    if shape.norm_before_fc:
        weights["input_norm.weight"] = (seen,)
    if shape.fc_norm:
        weights |= {f"fc_norm.{state}.weight": (shape.target_width,) for state in range(shape.states)}
    weights |= {
        f"layers.{number}.{name}.weight": size for number, each in enumerate(layers) for name, size in each.items()
    }
    if shape.mask_token is not None:
        weights[MASK] = (1, 1, seen)
    weights |= {"norm.weight": (width,), "lm_head.weight": (shape.draft_vocabulary, width)}
    return weights | ({"d2t": (shape.draft_vocabulary,)} if shape.maps_tokens else {})


def optional_shapes(shape: HeadShape) -> Mapping[str, tuple[int, ...]]:
    """Shapes of optional weights, by name: the head's embedding, and maps between token ids of head and target."""
    words = shape.layer.vocab_size
    return {"embed_tokens.weight": (words, shape.layer.hidden_size), "t2d": (words,), "d2t": (shape.draft_vocabulary,)}
