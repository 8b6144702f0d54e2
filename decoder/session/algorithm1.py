"""The paper's Algorithm 1 as printed, for the rows that reproduce the paper: two target passes a round.

The root is the draft's guess, not the target's token, so a wrong root wastes the tree; and the accepted text is
forwarded once more to rebuild the cache. Positions and branches are right here, as they are everywhere in this engine.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoder.device import Stopwatch
from decoder.draft.model_drafter import Drafter
from decoder.models.pair import Pair
from decoder.session.knob_state import KnobState, Turned
from decoder.session.protocol import AtStage, Outcome, TokenLimit, go_on
from decoder.session.steering import Turn
from decoder.tree import TokenTree, share_of_depth
from decoder.tree_rules import Rules, TreeRule
from decoder.verify.greedy import Greedy
from decoder.verify.verifier import Verifier


class Algorithm1Session:
    """Algorithm 1: draft a root and its tree, verify, roll back, rebuild."""

    def __init__(self, pair: Pair, prompt_ids: Sequence[int], max_new_tokens: int, rules: Rules) -> None:
        self.text = list(prompt_ids)
        self._pair = pair
        self._knobs = KnobState(rules)
        self._verifier: Verifier = Greedy()
        self._limit = TokenLimit(pair.eos, max_new_tokens)
        self._stopwatch = Stopwatch(pair.target.device)
        self._longest = len(prompt_ids) + max_new_tokens
        self.target_cache = pair.target.new_cache(self._longest)
        self.drafter = Drafter(pair.draft, pair.vocabulary, self._longest)
        self._reserve()
        self._next_choice = -1
        """The target's own token after the text."""

    @torch.inference_mode()
    def prefill(self) -> float:
        """Reads the whole prompt, its last token as each round reads what it has committed."""
        start = self._stopwatch.now()
        if self.text[:-1]:
            self._pair.target.read(self.target_cache, self.text[:-1])
            self.drafter.read(self.text[:-1])
        self._rebuild(self.text[-1:])
        return self._stopwatch.now() - start

    @torch.inference_mode()
    def step(self, turns: tuple[Turn, ...], at_stage: AtStage = go_on) -> Outcome:
        """One round of Algorithm 1."""
        clock = self._stopwatch
        start = clock.now()
        turned = self._turn(turns)
        forwards = self.drafter.forwards
        drafting = clock.now()
        tree = self._draft()
        verifying = clock.now()
        outcome = Outcome(
            tree=tree,
            round_s=verifying - start,
            draft_s=verifying - drafting,
            draft_forwards=self.drafter.forwards - forwards,
            knobs=self._knobs.adaptive,
            rules=self._knobs.rules,
            room=self._room,
            turned_before=turned,
        )
        clock.leave_out(at_stage("drafted", outcome))
        path, bonus = self._verifier.verify(tree, self._logits(tree))
        committing = clock.now()
        self._accept(outcome, path, bonus)
        outcome.target_forwards, outcome.verify_s = 1, committing - verifying
        outcome.round_s = clock.now() - start
        clock.leave_out(at_stage("verified", outcome))
        self._commit(outcome)
        outcome.target_forwards, outcome.commit_s = 2, clock.now() - committing
        outcome.turned_after = self._knobs.learn(share_of_depth(outcome.accepted, 1 + max(tree.depths)))
        outcome.round_s = clock.now() - start
        return outcome

    def close(self) -> None:
        """Nothing runs between rounds."""

    def _turn(self, turns: tuple[Turn, ...]) -> list[Turned]:
        turned = self._knobs.apply(turns)
        if turned:
            self._reserve()
        return turned

    def _reserve(self) -> None:
        rows = self._longest + 2 + int(self._rule().n_max)
        self.target_cache.reserve(rows)
        self.drafter.reserve(rows)

    def _rule(self) -> TreeRule[float]:
        # The root is a drafted node here and takes one place of the budget.
        rule = self._knobs.rule
        return replace(rule, n_max=rule.n_max - 1, best=0)

    @property
    def _room(self) -> int:
        """Levels below the root, itself drafted, that the context leaves room for."""
        return self._pair.context - 1 - len(self.text)

    def _draft(self) -> TokenTree:
        root = self.drafter.catch_up(self.text, 1)
        tree = TokenTree([root.tokens[0]], logprobs=[root.logprobs[0]], path_logprobs=[root.logprobs[0]])
        return self.drafter.grow(tree, self._rule(), None, deepest=self._room)

    def _logits(self, tree: TokenTree) -> Float[Tensor, "N V"]:
        positions = [len(self.text) + depth for depth in tree.depths]
        logits = self._pair.target.forward(self.target_cache, tree.tokens, positions, tree.visible())
        return self._pair.known(logits)

    def _accept(self, outcome: Outcome, path: list[int], bonus: int) -> None:
        tree = outcome.tree
        if tree.tokens[0] == self._next_choice:
            outcome.accepted = [0, *path]
        else:
            bonus = self._next_choice
        burst = [*(tree.tokens[node] for node in outcome.accepted), bonus]
        outcome.committed, outcome.finished = self._limit.cut(burst)

    def _commit(self, outcome: Outcome) -> None:
        self.target_cache.keep([])
        self._rebuild(outcome.committed)
        self.drafter.keep(self.drafter.rows_of(outcome.accepted[: len(outcome.committed)]))
        self.text.extend(outcome.committed)

    def _rebuild(self, tokens: Sequence[int]) -> None:
        first = self.target_cache.length
        positions = range(first, first + len(tokens))
        logits = self._pair.target.forward(self.target_cache, tokens, positions, np.tri(len(tokens), dtype=np.bool_))
        self.target_cache.keep(positions)
        _, self._next_choice = self._verifier.verify(TokenTree([tokens[-1]]), self._pair.known(logits[-1:]))
