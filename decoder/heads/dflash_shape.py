"""Configuration of a DFlash head. Sources: the code of z-lab, speculators, DeepSpec and TreeFlash."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from decoder.forward.families.architecture import Architecture
from decoder.forward.layer_kinds import SLIDING


@dataclass(frozen=True)
class Markov:
    """DSpark's correction: adds a bias, a product of two factors of rank `rank`, to the logits."""

    rank: int
    kind: Literal["vanilla", "gated", "rnn"] = "vanilla"
    """gated: a gate, which depends on the token and the row, scales the token's embedding; rnn: the bias also depends
    on the row and on a recurrent state of the path.
    """


@dataclass(frozen=True)
class Selector:
    """DFlash2's correction: the `candidates` best tokens of a row are scored again, given the previous token."""

    rank: int
    candidates: int


@dataclass(frozen=True)
class Swiglu:
    """TreeFlash's correction: adds to each row a SwiGLU of the previous token's embedding and the row itself."""


Correction = Markov | Selector | Swiglu


@dataclass(frozen=True)
class Convolution:
    """DFlash2's convolutions over the rows of a block, on the inputs and outputs of every layer's attention and MLP."""

    taps: int
    group: int
    """Number of adjacent dimensions that share the dynamic part of a kernel."""


@dataclass(frozen=True)
class BlockShape:
    kind: ClassVar[str] = "DFlash head"

    layer: Architecture
    """Architecture of a layer; its `vocab_size` is the target's."""
    draft_vocabulary: int
    """Number of tokens that the head can predict."""
    block_size: int
    """Number of rows of a block: the text's last token, then mask tokens."""
    mask_token: int
    causal: tuple[bool, ...]
    """For each layer, whether attention within the block is causal; otherwise it is bidirectional."""
    target_layers: tuple[int, ...] | None = None
    """Numbers of the target layers that the head reads, ascending; if None, `usual_layers` chooses them."""
    from_anchor: bool = False
    """Whether rows predict the token after their position; if not, rows after the first predict the token at it."""
    fixed_window: bool = False
    """Whether, in sliding layers, all rows of a block see the same window before the block, and the whole block."""
    embedding_scale: float = 1.0
    output_scale: float = 1.0
    """Factor of the logits."""
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
        return self.layer.hidden_size

    @property
    def states(self) -> int:
        """Number of target states, one for each target layer, that are combined into one hidden row."""
        return self.layer.num_hidden_layers if self.target_layers is None else len(self.target_layers)

    def window(self, layer: int) -> int | None:
        """Attention window of a layer, in tokens; None if the layer attends to the whole text."""
        return self.layer.sliding_window if self.layer.layer_types[layer] == SLIDING else None

    def layers_of(self, target_layers: int) -> tuple[int, ...]:
        return self.target_layers or usual_layers(target_layers, self.layer.num_hidden_layers)


def usual_layers(target_layers: int, layers: int) -> tuple[int, ...]:
    """Target layers for a head whose configuration lists none: as many as the head has layers, evenly spaced from layer
    2 to layer `target_layers` - 2; if the head has one layer, a layer in the middle.
    """
    if layers == 1:
        return (target_layers // 2 + 1,)
    return tuple(round(1 + place * (target_layers - 4) / (layers - 1)) + 1 for place in range(layers))
