"""Suffix lookup as a proposer: trees of the tokens that followed the text's suffix earlier, without a draft model.

A node's probability is its share of the earlier continuations; under coupled sampling, it is the probability that the
target's noise selects the node among these continuations. So lookup trees grow by the same rules as a draft model's.
"""

import math
from collections.abc import Sequence

from decoder.draft.growth import Children, grow
from decoder.draft.lookup import Continuation, SuffixIndex
from decoder.draft.lookup_noise import rank_guesses
from decoder.draft.proposer import Proposal, Proposer
from decoder.sampling.draft_probabilities import DraftProbabilities
from decoder.sampling.noise import TokenNoise
from decoder.tree import TokenTree
from decoder.tree_rules import Growth, TreeRule


class LookupDrafter(Proposer):
    def __init__(self, probabilities: DraftProbabilities | None = None) -> None:
        """`probabilities` give the target's sampling noise; None: greedy."""
        self._probabilities = probabilities
        self._past = SuffixIndex()

    def read(self, tokens: Sequence[int]) -> None:
        self._past.extend(tokens)

    def propose(self, text: Sequence[int], rule: TreeRule, room: int) -> Proposal:
        self._past.extend(text[len(self._past) :])
        tree, continuation = TokenTree([text[-1]]), self._past.continuation()
        if continuation is None:
            return Proposal(tree)
        noise = self._probabilities.noise_from(len(text)) if self._probabilities else None
        chosen = grow(tree, rule, _LookupSource(continuation, len(text), noise), room)
        return Proposal(tree if len(chosen) == len(tree) else tree.subtree(chosen))


class _LookupSource:
    def __init__(self, root: Continuation, position: int, noise: TokenNoise | None) -> None:
        """Continuations after the root, whose children have the position `position`."""
        self._after: dict[int, Continuation | None] = {0: root}
        self._position = position
        self._noise = noise

    def __call__(self, tree: TokenTree, nodes: Sequence[int], growth: Growth[float]) -> list[Children]:
        return [self._children(tree, node, int(growth.wide)) for node in nodes]

    def _children(self, tree: TokenTree, node: int, count: int) -> Children:
        ahead = self._continuation(tree, node)
        if ahead is None:
            return Children([], [])
        if self._noise:
            return _likeliest(rank_guesses(ahead, self._position + tree.depths[node], self._noise), count)
        following = ahead.following(count)
        return Children([token for token, _ in following], [math.log(share) for _, share in following])

    def _continuation(self, tree: TokenTree, node: int) -> Continuation | None:
        # Trees grow level by level, so the parent's continuation is already known.
        if node not in self._after:
            above = self._after.get(tree.parents[node])
            self._after[node] = above.after(tree.tokens[node]) if above else None
        return self._after[node]


def _likeliest(ranking: Sequence[tuple[int, float, float]], count: int) -> Children:
    """Probabilities are normalised over all ranked tokens."""
    *_, best_score = ranking[0]
    whole = best_score + math.log(sum(math.exp(score - best_score) for *_, score in ranking))
    tokens, logprobs, scores = (list(column) for column in zip(*ranking[:count], strict=True))
    return Children(tokens, [score - whole for score in scores], logprobs)
