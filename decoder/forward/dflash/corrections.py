"""Corrections of a DFlash head: after the block's pass, a row's logits are corrected for the token before the row.

A pass computes all rows of a block at once, so no row depends on the tokens that are chosen for the rows before it. A
correction computes a row's logits for each token that may come before the row, at the cost of small matrix products.
Knows neither trees nor texts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from decoder.forward.dflash.shape import BlockShape, Markov, Selector, Swiglu
from decoder.forward.layer_parts import NEVER, rms_normed


@dataclass(frozen=True, eq=False)
class Row:
    """Results of a pass for one row of a block; the row predicts one token."""

    output: Float[Tensor, "X"]
    """Output of the last layer."""
    hidden: Float[Tensor, "X"]
    """The output after the final norm."""
    logits: Float[Tensor, "D"]
    """Uncorrected logits, over the head's own token ids."""


Corrected = tuple[Float[Tensor, "N D"], Float[Tensor, "N R"]]
Correct = Callable[[Row, Int[Tensor, "N"], Float[Tensor, "N R"]], Corrected]
"""Function that corrects one row: (row, N tokens that may come before the row, memory of the N paths before these
tokens) -> (the row's logits after each token, memory of the N paths for the next row). The memory is a recurrent state;
its width is 0, except for the rnn kind of `Markov`.
"""


@dataclass(frozen=True)
class Parts:
    """Parts of a head that a correction needs."""

    shape: BlockShape
    weights: Mapping[str, Tensor]
    embedding: Float[Tensor, "V X"]
    logits: Callable[[Float[Tensor, "N X"]], Float[Tensor, "N D"]]
    """Logits of normalised rows, over the head's own token ids."""

    def times(self, rows: Float[Tensor, "N A"], name: str) -> Float[Tensor, "N B"]:
        """Product of rows and the named weight, plus its bias if there is one."""
        return functional.linear(rows, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))


def memory_width(shape: BlockShape) -> int:
    """Width of the memory that a correction keeps for each path; 0 if it keeps none."""
    return shape.correction.rank if isinstance(shape.correction, Markov) and shape.correction.kind == "rnn" else 0


def correction_of(parts: Parts) -> Correct | None:
    """The correction of a head; None if the logits of its rows do not depend on the tokens before the rows."""
    match parts.shape.correction:
        case Markov(_, kind):
            return {"vanilla": _vanilla, "gated": _gated, "rnn": _rnn}[kind](parts)
        case Selector():
            return _selector(parts)
        case Swiglu():
            return _swiglu(parts)
        case None:
            return None


def _vanilla(parts: Parts) -> Correct:
    first = parts.weights["markov_head.markov_w1.weight"]

    def correct(row: Row, tokens: Int[Tensor, "N"], memory: Float[Tensor, "N R"]) -> Corrected:
        return row.logits + parts.times(first[tokens], "markov_head.markov_w2"), memory

    return correct


def _gated(parts: Parts) -> Correct:
    first = parts.weights["markov_head.markov_w1.weight"]

    def correct(row: Row, tokens: Int[Tensor, "N"], memory: Float[Tensor, "N R"]) -> Corrected:
        before = first[tokens]
        gate = parts.times(_beside(row.hidden, before), "markov_head.gate_proj").sigmoid()
        return row.logits + parts.times(gate * before, "markov_head.markov_w2"), memory

    return correct


def _rnn(parts: Parts) -> Correct:
    first = parts.weights["markov_head.markov_w1.weight"]

    def correct(row: Row, tokens: Int[Tensor, "N"], memory: Float[Tensor, "N R"]) -> Corrected:
        before = first[tokens]
        given = torch.cat([memory, before, row.hidden.expand(len(tokens), -1)], -1)
        gate, new, out = parts.times(given, "markov_head.joint_proj").chunk(3, -1)
        kept = gate.sigmoid()
        bias = parts.times(out.tanh(), "markov_head.markov_w2")
        return row.logits + bias, kept * memory + (1 - kept) * new.tanh()

    return correct


def _selector(parts: Parts) -> Correct:
    correction = parts.shape.correction
    assert isinstance(correction, Selector)  # noqa: S101 - for mypy
    before, after = (parts.weights[f"candidate_selector.{part}_codebook"] for part in ("predecessor", "successor"))

    def correct(row: Row, tokens: Int[Tensor, "N"], memory: Float[Tensor, "N R"]) -> Corrected:
        base, candidates = row.logits.topk(correction.candidates)
        context = before[tokens] * parts.times(row.hidden[None], "candidate_selector.hidden_projection")
        scores = base + context @ after[candidates].T
        logits = scores.new_full((len(tokens), len(row.logits)), NEVER)
        return logits.index_copy_(1, candidates, scores), memory

    return correct


def _swiglu(parts: Parts) -> Correct:
    eps = parts.shape.layer.norm_eps

    def correct(row: Row, tokens: Int[Tensor, "N"], memory: Float[Tensor, "N R"]) -> Corrected:
        before = rms_normed(parts.embedding[tokens], parts.weights["ar_approximation.norm.weight"], SWIGLU_EPS)
        given = torch.cat([before, row.hidden.expand(len(tokens), -1)], -1)
        up, gate = parts.times(given, "ar_approximation.ug").chunk(2, -1)
        rows = row.output + parts.times(functional.silu(gate) * up, "ar_approximation.d")
        return parts.logits(rms_normed(rows, parts.weights["norm.weight"], eps)), memory

    return correct


SWIGLU_EPS = 1e-6
"""Epsilon of the norm within TreeFlash's correction; configurations have no field for it."""


def _beside(hidden: Float[Tensor, "X"], rows: Float[Tensor, "N R"]) -> Float[Tensor, "N XR"]:
    """The hidden row concatenated with each row of `rows`."""
    return torch.cat([hidden.expand(len(rows), -1), rows], -1)
