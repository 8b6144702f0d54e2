"""The text's own past as a proposer: trees of what followed its present end before, without a draft model.

A node's probability is its share among all that followed, so the rules that grow a model's tree grow this one. Knows
nothing of the target.
"""

import math
from collections.abc import Sequence

from decoder.draft.growth import Children, grow
from decoder.draft.lookup import Continuation, Past
from decoder.draft.proposer import Proposal
from decoder.tree import TokenTree
from decoder.tree_rules import TreeRule


class LookupDrafter:
    """A `Proposer` of one text."""

    def __init__(self) -> None:
        self._past = Past()

    def read(self, tokens: Sequence[int]) -> None:
        """See `Proposer`."""
        self._past.extend(tokens)

    def reserve(self, rows: int) -> None:
        """See `Proposer`; there is nothing to make room for."""

    def propose(self, text: Sequence[int], rule: TreeRule[float], room: int) -> Proposal:
        """See `Proposer`."""
        self._past.extend(text[len(self._past) :])
        tree, found = TokenTree([text[-1]]), self._past.continuation()
        if found is None:
            return Proposal(tree)
        kept = grow(tree, rule, _LookedUp(found), room)
        return Proposal(tree if len(kept) == len(tree) else tree.subtree(kept))

    def chosen(self, burst: Sequence[int]) -> None:
        """See `Proposer`; nothing is learnt."""

    def commit(self, path: Sequence[int]) -> None:
        """See `Proposer`; the text says what became of the tree."""

    def timed(self, draft_s: float, verify_s: float, round_s: float) -> None:
        """See `Proposer`; nothing is learnt."""


class _LookedUp:
    """The `Source` of one tree."""

    def __init__(self, root: Continuation) -> None:
        self._after: dict[int, Continuation | None] = {0: root}

    def __call__(self, tree: TokenTree, nodes: Sequence[int], count: int) -> list[Children]:
        found = []
        for node in nodes:
            ahead = self._continuation(tree, node)
            following = ahead.following(count) if ahead else []
            found.append(Children([token for token, _ in following], [math.log(share) for _, share in following]))
        return found

    def _continuation(self, tree: TokenTree, node: int) -> Continuation | None:
        # Levels are asked for one after the other, so what follows the parent is known.
        if node not in self._after:
            above = self._after.get(tree.parents[node])
            self._after[node] = above.after(tree.tokens[node]) if above else None
        return self._after[node]
