"""The paper's Algorithm 1 as printed, for the rows that reproduce the paper: two target passes a round.

The root is the draft's guess, not the target's token, so a wrong root wastes the tree; and the accepted text is
forwarded once more to rebuild the cache. Positions and branches are right here, as they are everywhere in this engine.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from decoder.config import RunConfig
from decoder.controller import Controller
from decoder.device import Stopwatch
from decoder.draft.drafter import Drafter
from decoder.engine import Budget, Outcome, most_probable, scratch_rows
from decoder.metrics import depth_acceptance
from decoder.models import Pair
from decoder.policy import Growth, dynatree_growth
from decoder.steering import Turn
from decoder.tree import TokenTree
from decoder.verify.greedy import accept


class Algorithm1Session:
    """Algorithm 1: draft a root and its tree, verify, roll back, rebuild."""

    def __init__(self, pair: Pair, prompt_ids: Sequence[int], config: RunConfig) -> None:
        self.text = list(prompt_ids)
        self._pair = pair
        self._controller = Controller(config.dynatree)
        self._budget = Budget(pair.eos, config.max_new_tokens)
        self._stopwatch = Stopwatch(pair.target.device)
        capacity = len(prompt_ids) + config.max_new_tokens + scratch_rows(self._growth()) + 1
        self.target_cache = pair.target.new_cache(capacity)
        self.drafter = Drafter(pair.draft, pair.vocabulary, capacity)
        self._next_choice = -1
        """The target's own token after the text."""

    @torch.inference_mode()
    def prefill(self) -> float:
        """Reads the whole prompt."""
        start = self._stopwatch.now()
        self._read(self.text)
        if self.text[:-1]:
            self.drafter.read(self.text[:-1])
        return self._stopwatch.now() - start

    @torch.inference_mode()
    def step(self, turns: tuple[Turn, ...]) -> Outcome:
        """One round of Algorithm 1."""
        start = self._stopwatch.now()
        turned_before = self._controller.apply(turns)
        knobs = self._controller.knobs
        forwards = self.drafter.forwards
        drafting = self._stopwatch.now()
        tree = self._draft()
        verifying = self._stopwatch.now()
        choices = self._verify(tree)
        committing = self._stopwatch.now()
        accepted, bonus = self._accept(tree, choices)
        committed, finished = self._budget.cut([*(tree.tokens[node] for node in accepted), bonus])
        self.target_cache.keep([])
        self._read(committed)
        self.drafter.keep(self.drafter.rows_of(accepted[: len(committed)]))
        self.text.extend(committed)
        committed_at = self._stopwatch.now()
        share = depth_acceptance(tree.parents, accepted, root_is_drafted=True)
        turned_after = self._controller.learn(share)
        return Outcome(
            tree=tree,
            accepted=accepted,
            committed=committed,
            round_s=self._stopwatch.now() - start,
            draft_s=verifying - drafting,
            verify_s=committing - verifying,
            commit_s=committed_at - committing,
            target_forwards=2,
            draft_forwards=self.drafter.forwards - forwards,
            knobs=knobs,
            turned_before=turned_before,
            turned_after=turned_after,
            finished=finished,
        )

    def close(self) -> None:
        """Nothing runs between rounds."""

    def _growth(self) -> Growth:
        # The root is a drafted node here and takes one place of the budget.
        growth = dynatree_growth(self._controller.rules)
        return replace(growth, n_max=growth.n_max - 1, selection="bfs")

    def _draft(self) -> TokenTree:
        root = self.drafter.catch_up(self.text, 1)
        tree = TokenTree([root.tokens[0]], logprobs=[root.logprobs[0]], path_logprobs=[root.logprobs[0]])
        return self.drafter.grow(tree, self._growth(), None, deepest=self._pair.context - 1 - len(self.text))

    def _verify(self, tree: TokenTree) -> list[int]:
        positions = [len(self.text) + depth for depth in tree.depths]
        logits = self._pair.target.forward(self.target_cache, tree.tokens, positions, tree.visible())
        return most_probable(logits, self._pair.vocabulary)

    def _accept(self, tree: TokenTree, choices: list[int]) -> tuple[list[int], int]:
        if tree.tokens[0] != self._next_choice:
            return [], self._next_choice
        path, bonus = accept(tree, choices)
        return [0, *path], bonus

    def _read(self, tokens: Sequence[int]) -> None:
        logits = self._pair.target.read(self.target_cache, tokens)
        self._next_choice = most_probable(logits[None], self._pair.vocabulary)[0]
