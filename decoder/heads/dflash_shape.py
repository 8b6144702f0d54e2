"""Configuration of a DFlash head: sizes and options. Sources: the code of z-lab, speculators, DeepSpec and TreeFlash.

Knows no files.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from decoder.forward.families.architecture import Architecture
from decoder.forward.windows import SLIDING


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
