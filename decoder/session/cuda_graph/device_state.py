"""Everything that changes from round to round, in device tensors that stay where they are.

One board serves one text at a time. Draft and verification read and write it; the host sees it through the report.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from decoder.session.cuda_graph.static_shapes import DEEPEST, MOST_NODES, WINDOW
from decoder.tree import TokenTree
from decoder.tree_rules import TreeRule

TOKEN, PARENT, DEPTH, ROW = range(4)
"""Lines of `Board.nodes`; ROW: which of the draft's rows a node was, of no meaning if it did not grow."""
OUTCOME = 1 + DEEPEST + 1
"""Numbers that tell of a verification: how many tokens; the accepted nodes and the token after them."""
REPORT = OUTCOME + 1 + 3 * MOST_NODES


class DeviceRule:
    """A growth rule whose numbers are device tensors."""

    def __init__(self, device: torch.device) -> None:
        self.vector: Float[Tensor, K] = torch.zeros(len(fields(TreeRule)), dtype=torch.float64, device=device)
        self.numbers: TreeRule[Float[Tensor, ""]] = TreeRule(*self.vector.unbind())
        """Each in place."""

    def turn(self, rule: TreeRule[float]) -> None:
        """Takes over all numbers."""
        self.vector.copy_(torch.tensor(astuple(rule), dtype=torch.float64))


class OnDevice:
    """What `tree_rules` computes with where its numbers are tensors and constants are not."""

    def where(self, condition: Tensor, yes: Tensor | float, no: Tensor | float, /) -> Tensor:
        """See `Arrays`."""
        return torch.where(condition, yes, no)

    def maximum(self, one: Tensor, other: Tensor | float, /) -> Tensor:
        """See `Arrays`."""
        return one.clamp(min=other)

    def minimum(self, one: Tensor, other: Tensor | float, /) -> Tensor:
        """See `Arrays`."""
        return one.clamp(max=other)


XP = OnDevice()


class Board:
    """The state of one text."""

    def __init__(self, device: torch.device, capacity: int) -> None:
        def whole(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int64, device=device)

        self.rule = DeviceRule(device)
        self.length: Int[Tensor, ""] = whole()
        """Tokens of the text; all but the last have keys and values in the target."""
        self.text: Int[Tensor, S] = whole(capacity)
        self.nodes: Int[Tensor, "4 N"] = whole(4, MOST_NODES)
        self.logprobs: Float[Tensor, N] = torch.zeros(MOST_NODES, dtype=torch.float64, device=device)
        self.count: Int[Tensor, ""] = whole()
        """Nodes of the tree, the root among them."""
        self.shares: Int[Tensor, W] = whole(WINDOW + 1)
        """Depth acceptances of the last rounds that drafted, as whole numbers; the last place is never read."""
        self.rounds: Int[Tensor, ""] = whole()
        """Rounds that drafted."""
        self.report: Float[Tensor, R] = torch.zeros(REPORT, dtype=torch.float64, device=device)

    def begin(self, text: Sequence[int], rule: TreeRule[float] | None) -> None:
        """A new text."""
        for tensor in self._all():
            tensor.zero_()
        self.text[: len(text)].copy_(torch.tensor(text))
        self.length.fill_(len(text))
        self.count.fill_(1)
        if rule:
            self.rule.turn(rule)

    def saved(self) -> "Saved":
        """What puts the present state back."""
        return Saved([(tensor, tensor.clone()) for tensor in self._all()])

    def _all(self) -> list[Tensor]:
        return [
            self.rule.vector,
            self.length,
            self.text,
            self.nodes,
            self.logprobs,
            self.count,
            self.shares,
            self.rounds,
            self.report,
        ]


@dataclass(frozen=True)
class Saved:
    """Tensors and what was in them."""

    pairs: Sequence[tuple[Tensor, Tensor]]

    def restore(self) -> None:
        """Puts it back."""
        for tensor, was in self.pairs:
            tensor.copy_(was)


@dataclass(frozen=True)
class Verified:
    """What the host learns of a verification."""

    accepted: list[int]
    bonus: int


def verified(report: NDArray[np.float64]) -> Verified:
    """Reads the first part of a report."""
    *accepted, bonus = report[1 : 1 + int(report[0])].astype(int).tolist()
    return Verified(accepted, bonus)


def drafted(report: NDArray[np.float64], root: int) -> TokenTree:
    """Reads the second part: the tree below this root that is verified next."""
    count = int(report[OUTCOME])
    nodes = report[OUTCOME + 1 :].reshape(3, MOST_NODES)[:, 1:count]
    tokens, parents = nodes[:2].astype(int).tolist()
    tree = TokenTree([root])
    for parent, token, logprob in zip(parents, tokens, nodes[2].tolist(), strict=True):
        tree.add(parent, token, logprob)
    return tree
