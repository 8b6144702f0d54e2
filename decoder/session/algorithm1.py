"""Algorithm 1 of the DynaTree paper as printed, to reproduce the paper's tables. A round has two target passes.

The draft chooses the tree's root, so if the target rejects the root, the whole tree is rejected. The target processes
the committed tokens a second time to rebuild its KV cache. In the paper's published code, the positions of tokens and
the branches of trees are wrong; in this module, they are correct.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from decoder.draft.draft_passes import DraftPasses
from decoder.draft.model_drafter import ModelDrafter
from decoder.draft.proposer import Proposal
from decoder.models.pair import Pair
from decoder.sampling.noise import DraftProbabilities, GumbelNoise
from decoder.session.host import HostRounds
from decoder.session.protocol import Outcome
from decoder.session.steering import KnobState
from decoder.tree import TokenTree
from decoder.tree_rules import Budget, Rules, TreeRule
from decoder.verify.verifier import CoupledVerifier


class Algorithm1Session(HostRounds):
    root_depth = 1

    def __init__(
        self,
        pair: Pair,
        prompt_ids: Sequence[int],
        max_new_tokens: int,
        rules: Rules,
        noise: GumbelNoise,
        probabilities: DraftProbabilities,
    ) -> None:
        self._parameters = KnobState(rules)
        super().__init__(pair, prompt_ids, max_new_tokens, self._parameters, CoupledVerifier(noise))
        self.drafter = ModelDrafter(DraftPasses(pair.draft_model, pair.vocabulary, self._longest), probabilities)
        self._reserve()
        self._next_choice = -1
        """The target's token after the text; the drafted root is accepted if it equals this token."""

    def _read(self) -> None:
        # Unlike in `HostSession`, the prompt's last token is read too: each round reads the tokens that it commits, so
        # no token of the text is unread when a round starts.
        if self.text[:-1]:
            self._pair.target.read(self.target_cache, self.text[:-1])
            self.drafter.read(self.text[:-1])
        self._rebuild(self.text[-1:])

    def _reserve(self) -> None:
        rows = self._longest + 2 + self._rule().budget.n_max
        self.target_cache.reserve(rows)
        self.drafter.reserve(rows)

    def _rule(self) -> TreeRule:
        # In Algorithm 1, the root is drafted, so it counts as one of the `n_max` nodes.
        rule = self._parameters.rule
        return replace(rule, budget=Budget(rule.budget.n_max - 1))

    def _propose(self) -> Proposal:
        before = self.drafter.passes.count
        root = self.drafter.catch_up(self.text, replace(self._rule().growth, wide=1))
        if root.lost:
            # The draft's largest logit is not finite. As a tree needs a root, the text's last token is drafted as root.
            return Proposal(TokenTree(self.text[-1:], lost=True), self.drafter.passes.count - before)
        tree = TokenTree(
            [root.tokens[0]],
            logprobs=[root.logprobs[0]],
            path_logprobs=[root.logprobs[0]],
            draft_logprobs=root.draft_logprobs or None,
        )
        tree = self.drafter.grow(tree, self._rule(), None, deepest=self._room)
        return Proposal(tree, self.drafter.passes.count - before)

    def _accept(self, tree: TokenTree, path: list[int], bonus: int) -> tuple[list[int], list[int]]:
        if tree.tokens[0] != self._next_choice:
            return [], [self._next_choice]
        return [0, *path], [*(tree.tokens[node] for node in [0, *path]), bonus]

    def _commit(self, outcome: Outcome) -> None:
        self.target_cache.keep([])
        self._rebuild(outcome.committed)
        outcome.target_forwards = 2
        self.drafter.commit(outcome.accepted[: len(outcome.committed)])
        self.text.extend(outcome.committed)

    def _rebuild(self, tokens: Sequence[int]) -> None:
        first = self.target_cache.length
        positions = range(first, first + len(tokens))
        logits = self._pair.target.forward(self.target_cache, tokens, positions, np.tri(len(tokens), dtype=np.bool_))
        self.target_cache.keep(positions)
        _, self._next_choice = self._verifier.verify(TokenTree([tokens[-1]]), logits[-1:], self.target_cache.length)
