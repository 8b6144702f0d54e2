"""Configuration of a DFlash head, and the corrections of its logits. Sources: the code of z-lab, speculators, DeepSpec
and TreeFlash.

A pass computes all rows of a block at once, so no row depends on the tokens that are chosen for the rows before it. A
correction computes a row's logits for each token that may come before the row, at the cost of small matrix products.
Parameters have the names of published checkpoints.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from decoder.forward.language_model import NEVER
from decoder.forward.layer_kinds import SLIDING
from decoder.heads.parts import RmsNorm, Shape

SWIGLU_EPS = 1e-6
"""Epsilon of the norm within TreeFlash's correction; configurations have no field for it."""


@dataclass(frozen=True, eq=False)
class BlockRow:
    """A row of a block, which predicts one token."""

    output: Float[Tensor, "X"]
    """Output of the last layer."""
    hidden: Float[Tensor, "X"]
    """The output after the final norm."""
    logits: Float[Tensor, "D"]
    """Uncorrected logits over the head's own token ids."""


class Outer(Protocol):
    """Parts of the head that a correction uses."""

    @property
    def embed_tokens(self) -> nn.Embedding: ...

    def own_logits(self, outputs: Float[Tensor, "N X"]) -> Float[Tensor, "N D"]:
        """Logits over the head's own token ids."""


Corrected = tuple[Float[Tensor, "N D"], Float[Tensor, "N R"]]
"""Logits after each of N tokens that may come before a row, and the memory of these N paths for the next row."""


class Correction(nn.Module):
    """(head, row, N tokens that may come before the row, memory of the N paths before these tokens) -> logits and new
    memory. The memory is a recurrent state.
    """

    memory_width = 0
    """Width of the memory of each path; 0 for a correction without memory."""


class MarkovHead(Correction):
    def __init__(self, shape: "BlockShape", markov: "Markov") -> None:
        super().__init__()
        rank, width = markov.rank, shape.layer.hidden_size
        self.kind, self.memory_width = markov.kind, rank if markov.kind == "rnn" else 0
        self.markov_w1 = nn.Embedding(shape.layer.vocab_size, rank)
        self.markov_w2 = nn.Linear(rank, shape.draft_vocabulary, bias=False)
        if self.kind == "gated":
            self.gate_proj = nn.Linear(width + rank, rank)
        if self.kind == "rnn":
            self.joint_proj = nn.Linear(width + 2 * rank, 3 * rank)

    def forward(
        self,
        head: Outer,  # noqa: ARG002 - the signature of all corrections
        row: BlockRow,
        tokens: Int[Tensor, "N"],
        memory: Float[Tensor, "N R"],
    ) -> Corrected:
        factor, hidden = self.markov_w1(tokens), row.hidden.expand(len(tokens), -1)
        if self.kind == "gated":
            factor = self.gate_proj(torch.cat([hidden, factor], -1)).sigmoid() * factor
        if self.kind == "rnn":
            gate, new, out = self.joint_proj(torch.cat([memory, factor, hidden], -1)).chunk(3, -1)
            kept, factor = gate.sigmoid(), out.tanh()
            memory = kept * memory + (1 - kept) * new.tanh()
        return row.logits + self.markov_w2(factor), memory


class CandidateSelector(Correction):
    def __init__(self, shape: "BlockShape", selector: "Selector") -> None:
        super().__init__()
        self.candidates, size = selector.candidates, (shape.layer.vocab_size, selector.rank)
        self.predecessor_codebook, self.successor_codebook = (nn.Parameter(torch.empty(size)) for _ in range(2))
        self.hidden_projection = nn.Linear(shape.layer.hidden_size, selector.rank, bias=False)

    def forward(
        self,
        head: Outer,  # noqa: ARG002 - the signature of all corrections
        row: BlockRow,
        tokens: Int[Tensor, "N"],
        memory: Float[Tensor, "N R"],
    ) -> Corrected:
        """Corrected logits; tokens that are not candidates get probability 0."""
        base, candidates = row.logits.topk(self.candidates)
        context = self.predecessor_codebook[tokens] * self.hidden_projection(row.hidden[None])
        scores = base + context @ self.successor_codebook[candidates].T
        logits = scores.new_full((len(tokens), len(row.logits)), NEVER)
        return logits.index_copy_(1, candidates, scores), memory


class ArApproximation(Correction):
    def __init__(self, shape: "BlockShape") -> None:
        super().__init__()
        width, inner = shape.layer.hidden_size, shape.layer.intermediate_size
        self.norm = RmsNorm(width, SWIGLU_EPS)
        self.ug = nn.Linear(2 * width, 2 * inner)
        self.d = nn.Linear(inner, width, bias=False)

    def forward(self, head: Outer, row: BlockRow, tokens: Int[Tensor, "N"], memory: Float[Tensor, "N R"]) -> Corrected:
        given = torch.cat([self.norm(head.embed_tokens(tokens)), row.hidden.expand(len(tokens), -1)], -1)
        up, gate = self.ug(given).chunk(2, -1)
        return head.own_logits(row.output + self.d(functional.silu(gate) * up)), memory


@dataclass(frozen=True)
class Markov:
    """DSpark's correction: adds a bias, a product of two factors of rank `rank`, to the logits."""

    prefix: ClassVar[str] = "markov_head"
    """Prefix of the names of the correction's weights."""
    rank: int
    kind: Literal["vanilla", "gated", "rnn"] = "vanilla"
    """gated: a gate, which depends on the token and the row, scales the token's embedding; rnn: the bias also depends
    on the row and on a recurrent state of the path.
    """

    def module(self, shape: "BlockShape") -> Correction:
        return MarkovHead(shape, self)


@dataclass(frozen=True)
class Selector:
    """DFlash2's correction: the `candidates` best tokens of a row are scored again, given the previous token."""

    prefix: ClassVar[str] = "candidate_selector"
    rank: int
    candidates: int

    def module(self, shape: "BlockShape") -> Correction:
        return CandidateSelector(shape, self)


@dataclass(frozen=True)
class Swiglu:
    """TreeFlash's correction: adds to each row a SwiGLU of the previous token's embedding and the row itself."""

    prefix: ClassVar[str] = "ar_approximation"

    def module(self, shape: "BlockShape") -> Correction:
        return ArApproximation(shape)


@dataclass(frozen=True)
class Convolution:
    """DFlash2's convolutions over the rows of a block, on the inputs and outputs of every layer's attention and MLP."""

    taps: int
    group: int
    """Number of adjacent dimensions that share the dynamic part of a kernel."""


@dataclass(frozen=True)
class BlockShape(Shape):
    kind: ClassVar[str] = "DFlash head"

    block_size: int
    """Number of rows of a block: the text's last token, then mask tokens."""
    mask_token: int
    causal: tuple[bool, ...]
    """For each layer, whether attention within the block is causal; otherwise it is bidirectional."""
    from_anchor: bool = False
    """Whether each row predicts the token after its position; otherwise, each row but the first predicts the token at
    its position.
    """
    fixed_window: bool = False
    """Whether, in sliding layers, all rows of a block see the same window before the block, and the whole block."""
    embedding_scale: float = 1.0
    output_scale: float = 1.0
    """Factor of the logits."""
    softcap: float | None = None
    """Limit c of the logits, which become c tanh(x / c); None: no limit."""
    correction: Markov | Selector | Swiglu | None = None
    convolution: Convolution | None = None

    @property
    def guesses(self) -> int:
        """Number of tokens that a block predicts."""
        return self.block_size - (not self.from_anchor)

    def window(self, layer: int) -> int | None:
        """Attention window of a layer, in tokens; None if the layer attends to the whole text."""
        return self.layer.sliding_window if self.layer.layer_types[layer] == SLIDING else None

    def usual_layers(self, layers: int) -> tuple[int, ...]:
        """As many layers as the head has, evenly spaced from layer 2 to layer `layers` - 2; a layer in the middle if
        the head has one layer.
        """
        own = self.layer.num_hidden_layers
        if own == 1:
            return (layers // 2 + 1,)
        return tuple(round(1 + place * (layers - 4) / (own - 1)) + 1 for place in range(own))
