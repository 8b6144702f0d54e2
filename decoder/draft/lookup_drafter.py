"""Suffix lookup as a proposer: trees of earlier continuations of the text's suffix, without a draft model.

A node's probability is its share among all that followed, or under the noise of coupled sampling its probability to be
chosen among these; so the rules that grow a model's tree grow this one. Knows nothing of the target.
"""

import math
from collections.abc import Sequence

from decoder.draft.growth import Children, grow
from decoder.draft.lookup import Continuation, Past
from decoder.draft.lookup_noise import ranked
from decoder.draft.proposer import Proposal
from decoder.sampling.draft_probabilities import DraftProbabilities
from decoder.sampling.noise import TokenNoise
from decoder.tree import TokenTree
from decoder.tree_rules import TreeRule


class LookupDrafter:
    """A `Proposer` of one text."""

    def __init__(self, probabilities: DraftProbabilities | None = None) -> None:
        """Begins a text; `probabilities` tell how the target samples, as far as is known; None: greedily."""
        self._probabilities = probabilities
        self._past = Past()

    def read(self, tokens: Sequence[int]) -> None:
        """See `Proposer`."""
        self._past.extend(tokens)

    def reserve(self, rows: int) -> None:
        """See `Proposer`; there is nothing to make room for."""

    def propose(self, text: Sequence[int], rule: TreeRule, room: int) -> Proposal:
        """See `Proposer`."""
        self._past.extend(text[len(self._past) :])
        tree, found = TokenTree([text[-1]]), self._past.continuation()
        if found is None:
            return Proposal(tree)
        noise = self._probabilities.noise_from(len(text)) if self._probabilities else None
        kept = grow(tree, rule, _LookedUp(found, len(text), noise), room)
        return Proposal(tree if len(kept) == len(tree) else tree.subtree(kept))

    def chosen(self, burst: Sequence[int]) -> None:
        """See `Proposer`; nothing is learnt."""

    def commit(self, path: Sequence[int]) -> None:
        """See `Proposer`; nothing to keep, since the text holds the committed tokens."""

    def timed(self, draft_s: float, verify_s: float, round_s: float) -> None:
        """See `Proposer`; nothing is learnt."""


class _LookedUp:
    """The `Source` of one tree."""

    def __init__(self, root: Continuation, position: int, noise: TokenNoise | None) -> None:
        """`position`: of the tokens after the root."""
        self._after: dict[int, Continuation | None] = {0: root}
        self._position = position
        self._noise = noise

    def __call__(self, tree: TokenTree, nodes: Sequence[int], count: int) -> list[Children]:
        return [self._children(tree, node, count) for node in nodes]

    def _children(self, tree: TokenTree, node: int, count: int) -> Children:
        ahead = self._continuation(tree, node)
        if ahead is None:
            return Children([], [])
        if self._noise:
            return _likeliest(ranked(ahead, self._position + tree.depths[node], self._noise), count)
        following = ahead.following(count)
        return Children([token for token, _ in following], [math.log(share) for _, share in following])

    def _continuation(self, tree: TokenTree, node: int) -> Continuation | None:
        # Levels are asked for one after the other, so what follows the parent is known.
        if node not in self._after:
            above = self._after.get(tree.parents[node])
            self._after[node] = above.after(tree.tokens[node]) if above else None
        return self._after[node]


def _likeliest(found: Sequence[tuple[int, float, float]], count: int) -> Children:
    """The first of these tokens, with their probabilities among all of them."""
    *_, most = found[0]
    whole = most + math.log(sum(math.exp(score - most) for *_, score in found))
    tokens, logprobs, scores = (list(each) for each in zip(*found[:count], strict=True))
    return Children(tokens, [score - whole for score in scores], logprobs)
