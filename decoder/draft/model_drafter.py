"""A draft model as a proposer: it catches up with the text, then grows a tree level by level.

Knows nothing of the target. One forward pass brings the next-token distributions of a whole level (DynaTree paper,
section 3.1).
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoder.draft.growth import Children, grow
from decoder.draft.proposer import Proposal
from decoder.forward.kv_cache import KvCache
from decoder.sampling.draft_probabilities import DraftProbabilities
from decoder.tree import TokenTree
from decoder.tree_rules import TreeRule


class Passes(Protocol):
    """Forward passes of a draft over one text; logits are over the ids that target and draft know."""

    cache: KvCache
    count: int
    """Passes so far, without those over the prompt."""

    def read(self, tokens: Sequence[int]) -> None:
        """Takes in the prompt but for its last token."""

    def reserve(self, rows: int) -> None:
        """Makes room for a text and a tree."""

    def behind(self, text: Sequence[int]) -> int:
        """Rows of a text that were not read; 0 where there is nothing to guess from."""

    def after_text(self, text: Sequence[int]) -> Float[Tensor, "1 V"]:
        """Reads what it lacks of a text; the logits after its last token."""

    def after_latest(self, text: Sequence[int], latest: int) -> tuple[Float[Tensor, "N V"], list[int]]:
        """The same after each of the `latest` tokens at most that it lacked, and the positions of the next tokens."""

    def begin_tree(self) -> None:
        """Forgets the nodes of the tree before."""

    def after_level(self, tree: TokenTree, nodes: Sequence[int]) -> tuple[Float[Tensor, "N V"], list[int]]:
        """Forwards nodes of one level, whose parents were; logits after them, and the positions of the next tokens."""

    def renumber(self, kept: Sequence[int]) -> None:
        """Takes note that only these nodes stay, numbered in their order."""

    def commit(self, path: Sequence[int]) -> None:
        """Keeps cache rows of the committed nodes and drops all others of the tree."""


class ModelDrafter:
    """A `Proposer` of one text, whose trees grow by rules alone.

    It guesses what the target chooses by what it takes for probabilities, or greedily.
    """

    def __init__(self, passes: Passes, probabilities: DraftProbabilities | None = None) -> None:
        self.passes = passes
        self._probabilities = probabilities

    def read(self, tokens: Sequence[int]) -> None:
        """See `Proposer`."""
        self.passes.read(tokens)

    def reserve(self, rows: int) -> None:
        """See `Proposer`; a tree of which more is tried makes room itself."""
        self.passes.reserve(rows)

    def propose(self, text: Sequence[int], rule: TreeRule, room: int) -> Proposal:
        """See `Proposer`."""
        tree, before = TokenTree([text[-1]]), self.passes.count
        if room >= 1 and self.passes.behind(text):
            tree = self.grow(tree, rule, self.catch_up(text, int(rule.growth.wide)), deepest=room)
        return Proposal(tree, self.passes.count - before)

    def chosen(self, burst: Sequence[int]) -> None:
        """See `Proposer`; nothing is learnt."""

    def commit(self, path: Sequence[int]) -> None:
        """See `Proposer`."""
        self.passes.commit(path)

    def timed(self, draft_s: float, verify_s: float, round_s: float) -> None:
        """See `Proposer`; nothing is learnt."""

    def catch_up(self, text: Sequence[int], count: int) -> Children:
        """Forwards the tokens of `text` that the cache lacks; returns the `count` best tokens after it."""
        return self._best(self.passes.after_text(text), [len(text)], count)[0]

    def catch_up_with_logits(self, text: Sequence[int], count: int, latest: int) -> list[Children]:
        """The same, but returns the `count` best tokens after each of the `latest` tokens at most that it lacked."""
        return self._best(*self.passes.after_latest(text, latest), count)

    def grow(self, tree: TokenTree, rule: TreeRule, children: Children | None, deepest: int) -> TokenTree:
        """The tree that is to be verified, grown from one that holds its root alone.

        `children` are the best tokens after a root that belongs to the text; None: the root must be forwarded. The
        context has room for `deepest` levels.
        """

        def source(tree: TokenTree, nodes: Sequence[int], count: int) -> list[Children]:
            return [children] if children and nodes == [0] else self.forward_level(tree, nodes, count)

        self.passes.begin_tree()
        return self.keep(tree, grow(tree, rule, source, deepest))

    def keep(self, tree: TokenTree, kept: Sequence[int]) -> TokenTree:
        """The subtree of these nodes, with cache rows to match."""
        if len(kept) == len(tree):
            return tree
        self.passes.renumber(kept)
        return tree.subtree(kept)

    def forward_level(self, tree: TokenTree, nodes: Sequence[int], count: int) -> list[Children]:
        """Forwards these nodes, all of one level, and returns the `count` best tokens after each."""
        return self._best(*self.passes.after_level(tree, nodes), count)

    def _best(self, logits: Float[Tensor, "N V"], positions: Sequence[int], count: int) -> list[Children]:
        """The `count` best tokens for each of these positions."""
        if self._probabilities is None or self._probabilities.greedy_from(positions[0]):
            return best_children(logits, count)
        probabilities = self._probabilities.probabilities(logits, positions)
        return best_children(probabilities, count, logits if self._probabilities.noisy else None)


def best_children(
    logits: Float[Tensor, "N V"], count: int, draft_logits: Float[Tensor, "N V"] | None = None
) -> list[Children]:
    """The `count` most probable tokens of each row, ties by the lower id; probabilities in float32.

    Where the draft's own logits are others, their probabilities of the same tokens come with them.
    """
    both = logits if draft_logits is None else torch.cat([logits.float(), draft_logits.float()])
    logprobs = both.log_softmax(-1, torch.float32)
    rows = logprobs[: len(logits)]
    best = _best_on_cpu if logprobs.device.type == "cpu" else _best_on_device
    tokens, values = best(rows, min(count, rows.shape[-1]))
    found = [Children(ids, scores) for ids, scores in zip(tokens, values, strict=True)]
    if draft_logits is not None:
        own = logprobs[len(logits) :].gather(-1, torch.tensor(tokens).to(logprobs.device))
        for children, draft_logprobs in zip(found, own.tolist(), strict=True):
            children.draft_logprobs = draft_logprobs
    return found


def _best_on_cpu(logprobs: Float[Tensor, "N V"], count: int) -> tuple[list[list[int]], list[list[float]]]:
    tokens, values = [], []
    for left in logprobs.numpy():
        best, scores = [], []
        for _ in range(count):
            # On a few thousand numbers, numpy's argmax costs a tenth of torch's, and of a sort; it takes the first of
            # equals.
            token = int(left.argmax())
            best.append(token)
            scores.append(float(left[token]))
            left[token] = -np.inf
        tokens.append(best)
        values.append(scores)
    return tokens, values


def _best_on_device(logprobs: Float[Tensor, "N V"], count: int) -> tuple[list[list[int]], list[list[float]]]:
    tokens, values = [], []
    for _ in range(count):
        # argmax takes the first of equal values, which topk does not promise.
        best = logprobs.argmax(-1, keepdim=True)
        tokens.append(best)
        values.append(logprobs.gather(-1, best))
        logprobs = logprobs.scatter(-1, best, -torch.inf)
    ids, scores = torch.stack([torch.cat(tokens, -1).double(), torch.cat(values, -1).double()]).tolist()
    return [[int(token) for token in row] for row in ids], scores
