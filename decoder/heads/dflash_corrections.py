"""Corrections of a DFlash head: after a block's pass, each row's logits are corrected for the token before the row.

A pass computes all rows of a block at once, so no row depends on the tokens that are chosen for the rows before it. A
correction computes a row's logits for each token that may come before the row, at the cost of small matrix products.
Parameters have the names of published checkpoints.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from decoder.forward.language_model import NEVER
from decoder.heads.dflash_shape import BlockShape, Markov, Selector, Swiglu
from decoder.heads.parts import RmsNorm

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
    def __init__(self, shape: BlockShape, markov: Markov) -> None:
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
    def __init__(self, shape: BlockShape, selector: Selector) -> None:
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
    def __init__(self, shape: BlockShape, _: Swiglu) -> None:
        super().__init__()
        width, inner = shape.layer.hidden_size, shape.layer.intermediate_size
        self.norm = RmsNorm(width, SWIGLU_EPS)
        self.ug = nn.Linear(2 * width, 2 * inner)
        self.d = nn.Linear(inner, width, bias=False)

    def forward(self, head: Outer, row: BlockRow, tokens: Int[Tensor, "N"], memory: Float[Tensor, "N R"]) -> Corrected:
        given = torch.cat([self.norm(head.embed_tokens(tokens)), row.hidden.expand(len(tokens), -1)], -1)
        up, gate = self.ug(given).chunk(2, -1)
        return head.own_logits(row.output + self.d(functional.silu(gate) * up)), memory


def correction_of(shape: BlockShape) -> tuple[str, Correction] | None:
    """Name prefix of the correction's weights, and the correction; None if the head has no correction."""
    match shape.correction:
        case Markov() as markov:
            return "markov_head", MarkovHead(shape, markov)
        case Selector() as selector:
            return "candidate_selector", CandidateSelector(shape, selector)
        case Swiglu() as swiglu:
            return "ar_approximation", ArApproximation(shape, swiglu)
        case None:
            return None
