"""The decoding loop of one method on one text, a round at a time: draft, verify, commit.

A `Session` owns its caches and nothing else; the pair is shared. It knows no text, no events and no other method.
Node 0 of a tree is the last committed token, whose keys and values the target does not have yet: it is the first row
of the verification, so one target pass both checks the tree and brings the next distribution, and nothing is computed
twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from decoder.config import RunConfig
from decoder.controller import Controller, Turned
from decoder.device import Stopwatch
from decoder.draft.drafter import Drafter
from decoder.events import Knobs
from decoder.metrics import depth_acceptance
from decoder.models import Pair
from decoder.policy import Growth, dynatree_growth
from decoder.steering import Turn
from decoder.tree import TokenTree
from decoder.verify.greedy import accept

Reason = Literal["length", "eos"]


@dataclass(frozen=True)
class Outcome:
    """What one round did. None: this method cannot know."""

    tree: TokenTree
    accepted: list[int]
    committed: list[int]
    round_s: float
    draft_s: float | None = None
    verify_s: float | None = None
    commit_s: float | None = None
    target_forwards: int | None = None
    draft_forwards: int | None = None
    knobs: Knobs | None = None
    turned_before: list[Turned] = field(default_factory=list)
    turned_after: list[Turned] = field(default_factory=list)
    finished: Reason | None = None


class Session(Protocol):
    """One method decoding one text."""

    def prefill(self) -> float:
        """Reads the prompt; returns the seconds it took."""

    def step(self, turns: tuple[Turn, ...]) -> Outcome:
        """Decodes one round under the user's turns so far."""

    def close(self) -> None:
        """Ends the session before its text is finished."""


class Budget:
    """Where a text ends: at an end-of-text token or at its length limit."""

    def __init__(self, eos: frozenset[int], max_new_tokens: int) -> None:
        self._eos = eos
        self._left = max_new_tokens

    def cut(self, tokens: Sequence[int]) -> tuple[list[int], Reason | None]:
        """The tokens that still belong to the text, and why it ends with them if it does."""
        kept = list(tokens[: self._left])
        end = next((index for index, token in enumerate(kept) if token in self._eos), None)
        if end is not None:
            kept = kept[: end + 1]
        self._left -= len(kept)
        if end is not None:
            return kept, "eos"
        return kept, None if self._left else "length"


class TreeSession:
    """Autoregressive, linear, fixed-tree and DynaTree decoding: one loop, other rules."""

    def __init__(
        self,
        pair: Pair,
        prompt_ids: Sequence[int],
        config: RunConfig,
        growth: Growth | None,
        controller: Controller | None = None,
    ) -> None:
        """Prepares a session.

        Args:
            pair: The models.
            prompt_ids: The prompt, at least one token.
            config: Only its length limit is read.
            growth: How trees grow; None drafts nothing.
            controller: Where given, its knobs decide each round's growth anew.
        """
        self.text = list(prompt_ids)
        self._pair = pair
        self._growth = growth
        self._controller = controller
        self._budget = Budget(pair.eos, config.max_new_tokens)
        self._stopwatch = Stopwatch(pair.target.device)
        capacity = len(prompt_ids) + config.max_new_tokens + scratch_rows(growth)
        self.target_cache = pair.target.new_cache(capacity)
        self.drafter = Drafter(pair.draft, pair.vocabulary, capacity) if growth else None

    @torch.inference_mode()
    def prefill(self) -> float:
        """Reads the prompt without its last token, which is the first root."""
        start = self._stopwatch.now()
        if self.text[:-1]:
            self._pair.target.read(self.target_cache, self.text[:-1])
            if self.drafter:
                self.drafter.read(self.text[:-1])
        return self._stopwatch.now() - start

    @torch.inference_mode()
    def step(self, turns: tuple[Turn, ...]) -> Outcome:
        """Draft, verify, commit: one target pass."""
        start = self._stopwatch.now()
        turned_before = self._controller.apply(turns) if self._controller else []
        knobs = self._controller.knobs if self._controller else None
        drafting = self._stopwatch.now()
        tree, draft_forwards = self._draft()
        verifying = self._stopwatch.now()
        choices = self._verify(tree)
        committing = self._stopwatch.now()
        accepted, committed, finished = self._commit(tree, choices)
        committed_at = self._stopwatch.now()
        turned_after = self._learn(tree, accepted)
        return Outcome(
            tree=tree,
            accepted=accepted,
            committed=committed,
            round_s=self._stopwatch.now() - start,
            draft_s=verifying - drafting,
            verify_s=committing - verifying,
            commit_s=committed_at - committing,
            target_forwards=1,
            draft_forwards=draft_forwards,
            knobs=knobs,
            turned_before=turned_before,
            turned_after=turned_after,
            finished=finished,
        )

    def close(self) -> None:
        """Nothing runs between rounds."""

    def _draft(self) -> tuple[TokenTree, int]:
        tree = TokenTree([self.text[-1]])
        growth = dynatree_growth(self._controller.rules) if self._controller else self._growth
        room = self._pair.context - len(self.text)
        if self.drafter is None or growth is None or room < 1:
            return tree, 0
        before = self.drafter.forwards
        children = self.drafter.catch_up(self.text, growth.widest)
        return self.drafter.grow(tree, growth, children, deepest=room), self.drafter.forwards - before

    def _verify(self, tree: TokenTree) -> list[int]:
        root = len(self.text) - 1
        positions = [root + depth for depth in tree.depths]
        logits = self._pair.target.forward(self.target_cache, tree.tokens, positions, tree.visible())
        return most_probable(logits, self._pair.vocabulary)

    def _commit(self, tree: TokenTree, choices: list[int]) -> tuple[list[int], list[int], Reason | None]:
        accepted, bonus = accept(tree, choices)
        committed, finished = self._budget.cut([*(tree.tokens[node] for node in accepted), bonus])
        # The last committed token has no keys and values yet; the root before them got its own in this round.
        first = self.target_cache.length
        self.target_cache.keep([first + node for node in [0, *accepted][: len(committed)]])
        if self.drafter:
            self.drafter.keep(self.drafter.rows_of(accepted[: len(committed)]))
        self.text.extend(committed)
        return accepted, committed, finished

    def _learn(self, tree: TokenTree, accepted: list[int]) -> list[Turned]:
        if not self._controller:
            return []
        return self._controller.learn(depth_acceptance(tree.parents, accepted, root_is_drafted=False))


def most_probable(logits: Float[Tensor, "N V"], vocabulary: int) -> list[int]:
    """The most probable token of each row, the lower id among equals; float32, as in transformers' generate."""
    choices: list[int] = logits[:, :vocabulary].float().argmax(-1).tolist()
    return choices


def scratch_rows(growth: Growth | None) -> int:
    """Rows that the drafted nodes of one round may take beyond the text, in either cache."""
    if growth is None:
        return 1
    return 1 + growth.n_max * (growth.deepest if growth.selection == "best" else 1)
