"""State of one text's rounds, in device tensors with fixed addresses.

Draft and verification read and write the state. The host reads the state through the report, an array of 64-bit
numbers, of which some entries are integers and all others are float64.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import astuple, fields, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from decoder.forward.token_choice import require_finite
from decoder.sampling.noise import DeviceSampling
from decoder.sampling.truncation import DeviceTruncation, Truncating
from decoder.session.cuda_graph.static_shapes import DEEPEST, HEAD_ROWS, MOST_NODES, WINDOW
from decoder.tree import TokenTree
from decoder.tree_rules import Growth, History, TreeRule

TOKEN, PARENT, LEVEL, ROW, LOGPROB, OWN_LOGPROB = range(6)
"""Indices of the lines of `DeviceState.nodes`; each column is a node. LEVEL: depth + 1, so 1 for the root; 0 for a
column without a node. ROW: index of the node's row in the draft, undefined for a node without children. LOGPROB and
OWN_LOGPROB are stored as the bits of a float64. OWN_LOGPROB: the draft's unmodified log-probability, defined only if
LOGPROB is sharpened or includes sampling noise."""
OUTCOME = 1 + 2 * (DEEPEST + 1)
"""Length of an outcome: number of committed tokens, accepted node at each depth, target's choice after each node."""
LARGEST = OUTCOME + (OWN_LOGPROB + 1) * MOST_NODES
"""Index in a report at which the target's largest logits begin, one for each row of the verification."""
DRAFTED_FROM = LARGEST + MOST_NODES
"""Index in a report of the log-probability of the draft's first node."""
REPORT = DRAFTED_FROM + 1
SHARE_BITS = 57
"""Fractional bits of a depth acceptance (accepted / drafted levels) as an integer. For trees of at most 32 levels, the
conversion from float64 loses no bit, and the sum of up to 63 such integers fits in 64 bits.
"""
LEVELS = DEEPEST + 2
BEFORE = HEAD_ROWS + 1
LEAST = torch.finfo(torch.float64).min
GROWTH, HISTORY = ([field.name for field in fields(part)] for part in (Growth, History))


class DeviceRule:
    def __init__(self, device: torch.device) -> None:
        growing = len(GROWTH)
        self.vector: Float[Tensor, K] = torch.zeros(growing + len(HISTORY) + 1, dtype=torch.float64, device=device)
        """All numbers of the rule; the attributes below are views of this tensor."""
        self._growth: Float[Tensor, G] = self.vector[:growing]
        self.growth: Growth[Float[Tensor, ""]] = Growth(*self._growth.unbind())
        self.history: History[Float[Tensor, ""]] = History(*self.vector[growing:-1].unbind())
        self.n_max: Float[Tensor, ""] = self.vector[-1]
        self.breadths: Float[Tensor, 3] = self._growth[GROWTH.index("narrow") :][:3]
        """`narrow`, `middle` and `wide`."""

    def turn(self, rule: TreeRule) -> None:
        numbers = *astuple(rule.growth), *astuple(rule.history), rule.budget.n_max
        self.vector.copy_(torch.tensor(numbers, dtype=torch.float64))

    def logarithmic(self) -> Growth[Tensor]:
        """The growth rule with logarithms of its thresholds. A threshold of 0 becomes the least finite float64, so that
        impossible nodes, whose log-probability is minus infinity, are below it.
        """
        logs = dict(zip(GROWTH, self._growth.log().clamp(min=LEAST)[:, None].unbind(), strict=True))
        return replace(self.growth, **{name: logs[name] for name in ("stop", "deep", "tau_h", "tau_l")})


class _OnDevice:
    def where(self, condition: Tensor, yes: Tensor | float, no: Tensor | float, /) -> Tensor:
        if isinstance(no, Tensor) and not isinstance(yes, Tensor):
            # torch.where would convert the number to a tensor in a separate kernel.
            return no.masked_fill(condition, yes)
        return torch.where(condition, yes, no)

    def maximum(self, one: Tensor, other: Tensor | float, /) -> Tensor:
        return one.clamp(min=other)

    def minimum(self, one: Tensor, other: Tensor | float, /) -> Tensor:
        return one.clamp(max=other)


XP = _OnDevice()
"""Elementwise operations for `tree_rules`; the second operand may be a Python number."""


class DeviceState:
    def __init__(self, device: torch.device, capacity: int, truncating: Truncating = DeviceTruncation.of) -> None:
        def whole(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int64, device=device)

        self.rule = DeviceRule(device)
        self.sampling = DeviceSampling(device, capacity, truncating)
        self.length: Int[Tensor, ""] = whole()
        """Number of tokens of the text. All but the last have keys and values in the target's store."""
        self.text: Int[Tensor, S] = whole(capacity)
        """The text, followed by the tree's tokens without the root."""
        self.shares: Int[Tensor, W] = whole(WINDOW)
        """Depth acceptances of the latest rounds with a draft; see `SHARE_BITS`."""
        self.rounds: Int[Tensor, ""] = whole()
        """Number of rounds with a draft so far."""
        self.report: Float[Tensor, R] = torch.zeros(REPORT, dtype=torch.float64, device=device)
        numbers = self.report.view(torch.int64)
        self.committed: Int[Tensor, ""] = numbers[0]
        """Number of tokens committed by the last verification."""
        self.outcome: Int[Tensor, "2 D"] = numbers[1:OUTCOME].view(2, -1)
        """For each depth, from 0 (the root): the accepted node, and the target's choice after it."""
        self.nodes: Int[Tensor, "6 N"] = numbers[OUTCOME:LARGEST].view(OWN_LOGPROB + 1, -1)
        self.drafted_from: Float[Tensor, One] = self.report[DRAFTED_FROM:]
        """Log-probability of the last draft's first node; not finite if the draft's largest logit is not finite."""
        self.largest: Float[Tensor, N] = self.report[LARGEST:DRAFTED_FROM]
        """The target's largest logit after each node of the last verification; undefined for other rows."""
        shares = [_share(level, tokens) for level in range(LEVELS) for tokens in range(LEVELS)]
        self.share_of: Int[Tensor, T] = torch.tensor(shares, device=device)
        """Depth acceptance at index (level of the deepest node) * `LEVELS` + (number of committed tokens)."""
        self.certain: Float[Tensor, ""] = torch.zeros((), dtype=torch.float64, device=device)
        self.impossible: Float[Tensor, ""] = torch.full_like(self.certain, -torch.inf)
        self.identity: Float[Tensor, "N N"] = torch.eye(MOST_NODES, device=device)
        self._steps: Int[Tensor, S] = torch.arange(-BEFORE, capacity, device=device)

    def steps(self, first: int, last: int) -> Int[Tensor, "M"]:
        """The integers from `first`, which may be negative, to `last`, exclusive."""
        return self._steps[first + BEFORE : last + BEFORE]

    def begin(self, text: Sequence[int], rule: TreeRule | None) -> None:
        for tensor in self._tensors():
            tensor.zero_()
        self.text[: len(text)].copy_(torch.tensor(text))
        self.length.fill_(len(text))
        self.nodes[LEVEL, :1].fill_(1)
        if rule:
            self.rule.turn(rule)

    def append_tree(self, nodes: int) -> None:
        """Copies the tokens of the first `nodes` nodes, without the root, to the end of `text`. Only for trees
        from the host: a draft on the device copies its tokens itself.
        """
        self.text.index_copy_(0, self.length + self.steps(0, nodes - 1), self.nodes[TOKEN, 1:nodes])

    def withdraw(self, length: int, *, drafted: bool) -> None:
        """Undoes a verification after `length` tokens, before a new draft; `drafted`: its tree had more than a root.
        The values not reset here are beyond the text's end, copied again by the host, or overwritten before any read.
        """
        self.length.fill_(length)
        if drafted:
            self.rounds.sub_(1)

    def saved(self) -> Callable[[], None]:
        """Returns a function that restores the current state."""
        pairs = [(tensor, tensor.clone()) for tensor in self._tensors()]

        def restore() -> None:
            for tensor, was in pairs:
                tensor.copy_(was)

        return restore

    def _tensors(self) -> list[Tensor]:
        return [self.rule.vector, self.length, self.text, self.shares, self.rounds, self.report]


def _share(level: int, tokens: int) -> int:
    levels, accepted = level - 1, tokens - 1
    return int(accepted / levels * 2.0**SHARE_BITS) if 0 <= accepted <= levels > 0 else 0


def node_lines(tree: TokenTree) -> NDArray[np.int64]:
    """Lines TOKEN, PARENT and LEVEL of a tree that the host has drafted, shape (3, N)."""
    lines, count = np.zeros((LEVEL + 1, MOST_NODES), dtype=np.int64), len(tree)
    lines[TOKEN, :count] = tree.tokens
    lines[PARENT, 1:count] = tree.parents[1:]
    lines[LEVEL, :count] = tree.depths
    lines[LEVEL, :count] += 1
    return lines


def verified(report: NDArray[np.float64], nodes: int) -> tuple[list[int], int]:
    """Accepted nodes below the root, and the next token. Raises LogitsError if a largest logit is not finite."""
    require_finite(report[LARGEST:][:nodes])
    count, *path_and_tokens = report[:OUTCOME].view(np.int64).tolist()
    path, tokens = path_and_tokens[: DEEPEST + 1], path_and_tokens[DEEPEST + 1 :]
    return path[1:count], tokens[count - 1]


def drafted_nodes(report: NDArray[np.float64]) -> int:
    """Number of nodes of the tree that is verified next, including the root."""
    return int(np.count_nonzero(_lines(report)[LEVEL].view(np.int64)))


def drafted(report: NDArray[np.float64], root: int, *, own: bool = False) -> TokenTree:
    """The tree that is verified next; `root` is the token of its root. `own`: `logprobs` are sharpened or noisy, so the
    tree also has the draft's unmodified `draft_logprobs`.
    """
    lines, count = _lines(report), drafted_nodes(report)
    nodes = lines.view(np.int64)
    tree = TokenTree.of(
        [root, *nodes[TOKEN, 1:count].tolist()],
        [-1, *nodes[PARENT, 1:count].tolist()],
        [0.0, *lines[LOGPROB, 1:count].tolist()],
    )
    tree.lost = not math.isfinite(report[DRAFTED_FROM])
    if own and count > 1:
        tree.draft_logprobs = [0.0, *lines[OWN_LOGPROB, 1:count].tolist()]
    return tree


def _lines(report: NDArray[np.float64]) -> NDArray[np.float64]:
    return report[OUTCOME:LARGEST].reshape(-1, MOST_NODES)
