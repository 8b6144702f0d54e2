"""The decoding loop of one method on one text, driven by the host: draft, verify, commit.

This module handles token ids; it is independent of events and of other methods. Node 0 of a tree is the last committed
token, for which the target has not computed keys and values yet. A single target pass over all nodes, including node 0,
verifies the tree and computes the distribution of the next token, so that no row is computed twice.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoder.draft.auto_drafter import AutoDrafter
from decoder.draft.draft_passes import DraftPasses, Passes
from decoder.draft.head_passes import BlockPasses, Eagle3Passes, ParallelPasses
from decoder.draft.lookup import LookupDrafter
from decoder.draft.model_drafter import LevelDrafter, ModelDrafter
from decoder.draft.proposer import Proposal, Proposer
from decoder.draft.translated_drafter import TranslatedDrafter
from decoder.draft.tree_size.controller import TreeSizeController
from decoder.forward.taps import LayerStates
from decoder.heads.dflash import BlockHead
from decoder.heads.eagle3 import Head
from decoder.heads.parts import GuidedHead, StatesReader
from decoder.models.pair import Pair
from decoder.sampling.noise import DraftProbabilities, GumbelNoise
from decoder.session.protocol import AtStage, Outcome, Session, TokenLimit, go_on, learnt
from decoder.session.steering import KnobState, Turn
from decoder.system.device import Stopwatch
from decoder.system.waiting import MOST_WAITED, waited_here_s
from decoder.tree import TokenTree
from decoder.tree_rules import Budget, Rules, TreeRule
from decoder.verify.verifier import CoupledVerifier, Verifier


def with_drafter(
    pair: Pair, longest: int, probabilities: DraftProbabilities, sizes: TreeSizeController | None
) -> tuple[Pair, Proposer]:
    """The pair, and a proposer that ranks nodes by `probabilities`, for a text of at most `longest` tokens. If the
    draft is a head, the target of the returned pair records layer states. If `sizes` is None, the rules alone limit the
    number of nodes.
    """
    model: LevelDrafter | None = None
    if head := pair.head:
        states = LayerStates(head.target_layers)
        pair = replace(pair, target=pair.target.tapped(states))
        model = ModelDrafter(passes_of(head, longest, states), probabilities)
    elif pair.draft and pair.translation:
        model = TranslatedDrafter(pair, pair.draft, pair.translation, longest)
    elif pair.draft:
        model = ModelDrafter(DraftPasses(pair.draft, pair.vocabulary, longest), probabilities)
    return pair, AutoDrafter(sizes, model, probabilities) if sizes else model or LookupDrafter(probabilities)


def passes_of(head: StatesReader, longest: int, states: LayerStates) -> Passes:
    """Raises TypeError for an unknown kind of head."""
    if isinstance(head, BlockHead):
        return BlockPasses(head, longest, states)
    if isinstance(head, Head) and head.shape.parallel:
        return ParallelPasses(head, longest, states)
    if isinstance(head, GuidedHead):
        return Eagle3Passes(head, longest, states)
    raise TypeError(f"{type(head).__name__} is not a known kind of drafting head")


class HostRounds(Session):
    root_depth = 0
    """1 if the tree's root is a drafted token, 0 if the root is the last committed token."""
    proposer: Proposer | None = None

    def __init__(
        self, pair: Pair, prompt_ids: Sequence[int], max_new_tokens: int, knobs: KnobState | None, verifier: Verifier
    ) -> None:
        """If `knobs` is None, no tree is drafted."""
        self.text = list(prompt_ids)
        self._pair = pair
        self._knobs = knobs
        self._verifier = verifier
        self._limit = TokenLimit(pair.eos, max_new_tokens)
        self._stopwatch = Stopwatch(pair.target.device)
        self._longest = len(prompt_ids) + max_new_tokens
        self._untaught: tuple[Outcome, float] | None = None
        """The latest round and the seconds that it waited for a processor; None once the proposer has the times."""
        self.target_cache = pair.target.new_cache(self._longest)

    @torch.inference_mode()
    def prefill(self) -> float:
        start = self._stopwatch.now()
        self._read()
        return self._stopwatch.now() - start

    @torch.inference_mode()
    def step(self, turns: tuple[Turn, ...], at_stage: AtStage = go_on) -> Outcome:
        clock, waited_s = self._stopwatch, waited_here_s() if self.proposer else 0.0
        start = clock.now()
        self._teach_times()
        turned = self._knobs.apply(turns) if self._knobs else []
        if turned:
            self._reserve()
        drafting = clock.now()
        proposal = self._propose()
        verifying = clock.now()
        outcome = Outcome(
            tree=proposal.tree,
            round_s=verifying - start,
            draft_s=verifying - drafting,
            draft_forwards=proposal.forwards,
            knobs=self._knobs.adaptive if self._knobs else None,
            rules=self._knobs.rules if self._knobs else None,
            room=self._room,
            turned_before=turned,
            shape=proposal.shape,
        )
        clock.leave_out(at_stage("drafted", outcome))
        first, logits = self._root + 1, self._logits(proposal.tree)
        path, bonus = self._verifier.verify(proposal.tree, logits, first)
        committing = clock.now()
        outcome.accepted, burst = self._accept(proposal.tree, path, bonus)
        outcome.committed, outcome.finished = self._limit.cut(burst)
        outcome.target_forwards, outcome.verify_s = 1, committing - verifying
        if not self.root_depth:
            outcome.statistics = partial(
                self._verifier.statistics, proposal.tree, logits, first, path, outcome.committed
            )
        outcome.round_s = clock.now() - start
        clock.leave_out(at_stage("verified", outcome))
        self._commit(outcome)
        outcome.commit_s = clock.now() - committing
        outcome.turned_after = learnt(self._knobs, outcome, self.root_depth)
        outcome.round_s = clock.now() - start
        if self.proposer:
            self._untaught = outcome, waited_here_s() - waited_s
        return outcome

    def close(self) -> None:
        self._teach_times()

    def _teach_times(self) -> None:
        """Passes the latest round's times to the proposer, unless the round stalled or waited too long for a processor:
        on a busy machine, long rounds wait more often than short ones, so drafting would seem too expensive.

        Called once the caller of `step` has recorded whether the round stalled.
        """
        if self._untaught and self.proposer:
            outcome, waited_s = self._untaught
            if not outcome.stalled_s and waited_s <= MOST_WAITED * outcome.round_s:
                self.proposer.record_times(outcome.draft_s or 0.0, outcome.verify_s or 0.0, outcome.round_s)
        self._untaught = None

    @property
    def _room(self) -> int:
        """Number of levels below the root that still fit in the context."""
        return self._pair.context - self.root_depth - len(self.text)

    @property
    def _root(self) -> int:
        """Position of the tree's root in the text."""
        return len(self.text) - 1 + self.root_depth

    def _logits(self, tree: TokenTree) -> Float[Tensor, "N V"]:
        positions = [self._root + depth for depth in tree.depths]
        return self._pair.target.forward(self.target_cache, tree.tokens, positions, tree.visible())

    @abstractmethod
    def _read(self) -> None:
        """Reads the prompt into the caches."""

    @abstractmethod
    def _reserve(self) -> None:
        """Reserves cache rows for the text and for a tree under the current rules."""

    @abstractmethod
    def _propose(self) -> Proposal:
        """Drafts the tree of this round."""

    @abstractmethod
    def _accept(self, tree: TokenTree, path: list[int], bonus: int) -> tuple[list[int], list[int]]:
        """Accepted nodes, and tokens to commit; `path` and `bonus` are the verifier's accepted path and next token."""

    @abstractmethod
    def _commit(self, outcome: Outcome) -> None:
        """Commits the round's tokens to the caches and the text."""


class HostSession(HostRounds):
    """Autoregressive, linear, fixed-tree and DynaTree decoding: one target pass per round."""

    def __init__(
        self,
        pair: Pair,
        prompt_ids: Sequence[int],
        max_new_tokens: int,
        knobs: KnobState | None,
        proposer: Proposer | None,
        verifier: Verifier,
    ) -> None:
        super().__init__(pair, prompt_ids, max_new_tokens, knobs, verifier)
        self.proposer = proposer
        self._reserve()

    def _read(self) -> None:
        # The last token is not read here: it is the root of the first tree.
        if self.text[:-1]:
            self._pair.target.read(self.target_cache, self.text[:-1])
            if self.proposer:
                self.proposer.read(self.text[:-1])

    def _reserve(self) -> None:
        # If the draft model needs rows for nodes that the tree does not keep, the proposer enlarges the draft's cache.
        rows = self._longest + 1 + (self._knobs.rule.budget.n_max if self._knobs else 0)
        self.target_cache.reserve(rows)
        if self.proposer:
            self.proposer.reserve(rows)

    def _propose(self) -> Proposal:
        if self.proposer is None or self._knobs is None:
            return Proposal(TokenTree([self.text[-1]]))
        return self.proposer.propose(self.text, self._knobs.rule, self._room)

    def _accept(self, tree: TokenTree, path: list[int], bonus: int) -> tuple[list[int], list[int]]:
        burst = [*(tree.tokens[node] for node in path), bonus]
        if self.proposer:
            self.proposer.record_choices(burst)
        return path, burst

    def _commit(self, outcome: Outcome) -> None:
        path = [0, *outcome.accepted][: len(outcome.committed)]
        # Rows of the root and of accepted nodes are kept; the last committed token has no keys and values yet.
        first = self.target_cache.length
        self.target_cache.keep([first + node for node in path])
        if self.proposer:
            self.proposer.commit(outcome.accepted[: len(outcome.committed)])
        self.text.extend(outcome.committed)


class Algorithm1Session(HostRounds):
    """Algorithm 1 of the DynaTree paper as printed, to reproduce the paper's tables. A round has two target passes.

    The draft chooses the tree's root, so if the target rejects the root, the whole tree is rejected. The target
    processes the committed tokens a second time to rebuild its KV cache. In the paper's published code, the positions
    of tokens and the branches of trees are wrong; in this class, they are correct.
    """

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
