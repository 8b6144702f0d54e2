"""State of one text's rounds, in device tensors with fixed addresses.

Draft and verification read and write the state. The host reads the state through the report, an array of 64-bit
numbers, of which some are integers and all others are float64.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import astuple, fields, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from decoder.forward.finite_logits import require_finite
from decoder.sampling.device_truncation import DeviceTruncation, Truncating
from decoder.sampling.on_device import DeviceSampling
from decoder.session.cuda_graph.static_shapes import DEEPEST, HEAD_ROWS, MOST_NODES, WINDOW
from decoder.tree import TokenTree
from decoder.tree_rules import Growth, History, TreeRule

TOKEN, PARENT, LEVEL, ROW, LOGPROB, OWN_LOGPROB = range(6)
"""Indices of the lines of `DeviceState.nodes`; each column is a node. LEVEL: depth + 1, so 1 for the root; 0 for a
column without a node. ROW: index of the node's row in the draft, undefined for a node without children. LOGPROB and
OWN_LOGPROB are stored as the bits of a float64. OWN_LOGPROB: the draft's own log-probability, only defined if LOGPROB
is sharpened or includes sampling noise."""
OUTCOME = 1 + 2 * (DEEPEST + 1)
"""Number of entries of a verification's outcome. The entries are the number of committed tokens, then the accepted node
at each depth, then the token after each of these nodes.
"""
LARGEST = OUTCOME + (OWN_LOGPROB + 1) * MOST_NODES
"""Index of the first of the largest logits in a report, one for each row of the verification."""
DRAFTED_FROM = LARGEST + MOST_NODES
"""Index of the draft's largest logit after the text in a report."""
REPORT = DRAFTED_FROM + 1
SHARE_BITS = 57
"""Number of fractional bits of a depth acceptance (accepted levels / drafted levels), which is stored as an integer, a
multiple of 2^-57. For trees of at most 32 levels this integer is exact, and the sum of up to 63 such integers fits in
64 bits.
"""
LEVELS = DEEPEST + 2
BEFORE = HEAD_ROWS + 1
"""Number of negative integers in `DeviceState.steps`."""
LEAST = torch.finfo(torch.float64).min
GROWTH, HISTORY = ([field.name for field in fields(part)] for part in (Growth, History))


class DeviceRule:
    """A growth rule whose numbers are device tensors."""

    def __init__(self, device: torch.device) -> None:
        growing = len(GROWTH)
        self.vector: Float[Tensor, K] = torch.zeros(growing + len(HISTORY) + 1, dtype=torch.float64, device=device)
        """All numbers of the rule; the tensors below are views of this vector."""
        self._growth: Float[Tensor, G] = self.vector[:growing]
        self.growth: Growth[Float[Tensor, ""]] = Growth(*self._growth.unbind())
        self.history: History[Float[Tensor, ""]] = History(*self.vector[growing:-1].unbind())
        self.n_max: Float[Tensor, ""] = self.vector[-1]
        self.breadths: Float[Tensor, 3] = self._growth[GROWTH.index("narrow") :][:3]
        """The rule's numbers of children: `narrow`, `middle` and `wide`."""

    def turn(self, rule: TreeRule) -> None:
        """Copies all numbers of a rule to the device."""
        numbers = *astuple(rule.growth), *astuple(rule.history), rule.budget.n_max
        self.vector.copy_(torch.tensor(numbers, dtype=torch.float64))

    def logarithmic(self) -> Growth[Tensor]:
        """The growth rule with the logarithms of its probability thresholds. A threshold of 0 becomes the least finite
        float64, so that impossible nodes, whose log-probability is minus infinity, are below every threshold.
        """
        logs = dict(zip(GROWTH, self._growth.log().clamp(min=LEAST)[:, None].unbind(), strict=True))
        return replace(self.growth, **{name: logs[name] for name in ("stop", "deep", "tau_h", "tau_l")})


class _OnDevice:
    def where(self, condition: Tensor, yes: Tensor | float, no: Tensor | float, /) -> Tensor:
        if isinstance(no, Tensor) and not isinstance(yes, Tensor):
            # torch.where would make a tensor of the number, by a kernel of its own.
            return no.masked_fill(condition, yes)
        return torch.where(condition, yes, no)

    def maximum(self, one: Tensor, other: Tensor | float, /) -> Tensor:
        return one.clamp(min=other)

    def minimum(self, one: Tensor, other: Tensor | float, /) -> Tensor:
        return one.clamp(max=other)


XP = _OnDevice()
"""Elementwise operations on tensors for `tree_rules`. The second operand may be a Python number instead of a tensor."""


class DeviceState:
    """State of one text's rounds, in device tensors."""

    def __init__(self, device: torch.device, capacity: int, truncating: Truncating = DeviceTruncation.of) -> None:
        def whole(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int64, device=device)

        self.rule = DeviceRule(device)
        self.sampling = DeviceSampling(device, capacity, truncating)
        """Sampling settings for each position of the text; rounds do not change these settings."""
        self.length: Int[Tensor, ""] = whole()
        """Number of tokens of the text. All tokens except the last one have keys and values in the target's store."""
        self.text: Int[Tensor, S] = whole(capacity)
        """Tokens of the text, followed by the tokens of the tree without its root."""
        self.shares: Int[Tensor, W] = whole(WINDOW)
        """Depth acceptances of the latest rounds with a draft, as integers; see `SHARE_BITS`."""
        self.rounds: Int[Tensor, ""] = whole()
        """Number of rounds with a draft so far."""
        self.report: Float[Tensor, R] = torch.zeros(REPORT, dtype=torch.float64, device=device)
        numbers = self.report.view(torch.int64)
        self.committed: Int[Tensor, ""] = numbers[0]
        """Number of tokens committed by the last verification."""
        self.outcome: Int[Tensor, "2 D"] = numbers[1:OUTCOME].view(2, -1)
        """For each depth, from 0 (the root): the accepted node (line 0), and the token after this node (line 1)."""
        self.nodes: Int[Tensor, "6 N"] = numbers[OUTCOME:LARGEST].view(OWN_LOGPROB + 1, -1)
        self.drafted_from: Float[Tensor, One] = self.report[DRAFTED_FROM:]
        """Log-probability of the first node of the last draft; finite only if all logits after the text are numbers."""
        self.largest: Float[Tensor, N] = self.report[LARGEST:DRAFTED_FROM]
        """The target's largest logit after each node of the last verification; entries of other rows are undefined."""
        shares = [_share(level, tokens) for level in range(LEVELS) for tokens in range(LEVELS)]
        self.share_of: Int[Tensor, T] = torch.tensor(shares, device=device)
        """Depth acceptances as integers, for each pair (level of the deepest node, number of committed tokens)."""
        self.certain: Float[Tensor, ""] = torch.zeros((), dtype=torch.float64, device=device)
        self.impossible: Float[Tensor, ""] = torch.full_like(self.certain, -torch.inf)
        """Log-probability of an impossible node: minus infinity."""
        self.identity: Float[Tensor, "N N"] = torch.eye(MOST_NODES, device=device)
        self._steps: Int[Tensor, S] = torch.arange(-BEFORE, capacity, device=device)

    def steps(self, first: int, last: int) -> Int[Tensor, "M"]:
        """Tensor of the integers from `first`, which may be negative, to `last`, exclusive."""
        return self._steps[first + BEFORE : last + BEFORE]

    def begin(self, text: Sequence[int], rule: TreeRule | None) -> None:
        """Begins a new text, whose draft trees grow under this rule."""
        for tensor in self._tensors():
            tensor.zero_()
        self.text[: len(text)].copy_(torch.tensor(text))
        self.length.fill_(len(text))
        self.nodes[LEVEL, :1].fill_(1)
        if rule:
            self.rule.turn(rule)

    def append_tree(self, nodes: int) -> None:
        """Copies the tokens of the tree's first `nodes` nodes, without the root, to `text`, after the text's own
        tokens. A draft on the device does this itself; for a tree that the host has drafted, the verification does it.
        """
        self.text.index_copy_(0, self.length + self.steps(0, nodes - 1), self.nodes[TOKEN, 1:nodes])

    def withdraw(self, length: int, *, drafted: bool) -> None:
        """Undoes a verification after a text of `length` tokens, if a draft follows; `drafted`: the verified tree had
        nodes below the root.

        Nothing else has to be restored. The host copies the rule again. All other values are behind the text's end, or
        are overwritten by the next draft and verification before they are read.
        """
        self.length.fill_(length)
        if drafted:
            self.rounds.sub_(1)

    def saved(self) -> Callable[[], None]:
        """Saves the current state; returns a function that restores it."""
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
    """Lines TOKEN, PARENT and LEVEL of `DeviceState.nodes` for a tree that the host has drafted, shape (3, N). The
    verification needs no other lines if there is no draft model.
    """
    lines, count = np.zeros((LEVEL + 1, MOST_NODES), dtype=np.int64), len(tree)
    lines[TOKEN, :count] = tree.tokens
    lines[PARENT, 1:count] = tree.parents[1:]
    lines[LEVEL, :count] = tree.depths
    lines[LEVEL, :count] += 1
    return lines


def verified(report: NDArray[np.float64], nodes: int) -> tuple[list[int], int]:
    """Accepted nodes below the root, and the bonus token after the last accepted node, read from a report about a tree
    of `nodes` nodes.

    Raises:
        LogitsError: The target's logits after a node leave no choice.
    """
    require_finite(report[LARGEST:][:nodes])
    count, *path_and_tokens = report[:OUTCOME].view(np.int64).tolist()
    path, tokens = path_and_tokens[: DEEPEST + 1], path_and_tokens[DEEPEST + 1 :]
    return path[1:count], tokens[count - 1]


def drafted_nodes(report: NDArray[np.float64]) -> int:
    """Number of nodes of the draft tree that is verified next, the root included."""
    return int(np.count_nonzero(_lines(report)[LEVEL].view(np.int64)))


def drafted(report: NDArray[np.float64], root: int) -> TokenTree:
    """The draft tree that is verified next, read from a report; `root` is the token of the tree's root."""
    lines, count = _lines(report), drafted_nodes(report)
    nodes = lines.view(np.int64)
    tree = TokenTree.of(
        [root, *nodes[TOKEN, 1:count].tolist()],
        [-1, *nodes[PARENT, 1:count].tolist()],
        [0.0, *lines[LOGPROB, 1:count].tolist()],
    )
    tree.lost = not math.isfinite(report[DRAFTED_FROM])
    return tree


def drafted_with_own(report: NDArray[np.float64], root: int) -> TokenTree:
    """The tree of `drafted`, with the draft's own log-probabilities added; used if those of the growth rule are
    sharpened or include sampling noise.
    """
    tree = drafted(report, root)
    if len(tree) > 1:
        tree.draft_logprobs = [0.0, *_lines(report)[OWN_LOGPROB, 1 : len(tree)].tolist()]
    return tree


def _lines(report: NDArray[np.float64]) -> NDArray[np.float64]:
    """The part of a report that holds `DeviceState.nodes`, as lines of float64."""
    return report[OUTCOME:LARGEST].reshape(-1, MOST_NODES)
