"""A draft model as a proposer: one tree a round, of a size that its rule gives or that costs decide."""

from collections.abc import Sequence

from decoder.draft.model_drafter import Children, Drafter
from decoder.draft.proposer import Proposal
from decoder.draft.tree_size.controller import TreeSizeController
from decoder.tree import TokenTree
from decoder.tree_rules import TreeRule

PROBED_FROM, PROBED_ROWS = 4, 32
"""Rows; a draft that lags behind by more has missed rounds, and is tested on so many of the latest."""


class ModelProposer:
    """A `Proposer`."""

    def __init__(self, drafter: Drafter, sizes: TreeSizeController | None = None) -> None:
        """Begins a text.

        Args:
            drafter: The model's side of a round.
            sizes: What decides how many nodes pay; None: the rule alone does.
        """
        self.drafter = drafter
        self._sizes = sizes
        self._forwards = 0

    def read(self, tokens: Sequence[int]) -> None:
        """See `Proposer`."""
        self.drafter.read(tokens)

    def reserve(self, rows: int) -> None:
        """See `Proposer`."""
        self.drafter.reserve(rows)

    def propose(self, text: Sequence[int], rule: TreeRule[float], room: int) -> Proposal:
        """See `Proposer`."""
        tree, drafter = TokenTree([text[-1]]), self.drafter
        behind = len(text) - drafter.cache.length
        pays = self._sizes is None or self._sizes.drafts(behind)
        before = drafter.forwards
        if room >= 1 and pays:
            children = self._catch_up(text, behind, int(rule.wide))
            tree = drafter.grow(tree, rule, children, deepest=room, budget=self._sizes)
        self._forwards = drafter.forwards - before
        return Proposal(tree, self._forwards)

    def chosen(self, burst: Sequence[int]) -> None:
        """See `Proposer`."""
        if self._sizes:
            self._sizes.learn(burst)

    def commit(self, path: Sequence[int]) -> None:
        """See `Proposer`."""
        if self._forwards:
            self.drafter.keep(self.drafter.rows_of(path))

    def timed(self, draft_s: float, verify_s: float, round_s: float) -> None:
        """See `Proposer`."""
        if self._sizes:
            self._sizes.timed(draft_s, verify_s, round_s)

    def _catch_up(self, text: Sequence[int], behind: int, count: int) -> Children:
        """The draft's best next tokens; after rounds without it, the sizes learn what it would have guessed."""
        if self._sizes is None or behind <= PROBED_FROM:
            return self.drafter.catch_up(text, count)
        *missed, last = self.drafter.catch_up_with_logits(text, count, PROBED_ROWS)
        self._sizes.probe_draft([(guess.tokens, guess.logprobs) for guess in missed], text[-len(missed) :])
        return last
