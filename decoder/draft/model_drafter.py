"""A draft model as a proposer: it reads the unread tokens at the end of the text, then grows a tree, with one pass for
each level (DynaTree paper, section 3.1).
"""

import math
from abc import abstractmethod
from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from decoder.draft.draft_passes import Passes
from decoder.draft.growth import Children, grow, kept_nodes
from decoder.draft.proposer import Proposal, Proposer
from decoder.forward.compiled.growth import Expectation, Grown
from decoder.forward.token_choice import ranked
from decoder.sampling.noise import DraftProbabilities, Estimate
from decoder.sampling.ranking import Best, Ranking
from decoder.tree import TokenTree
from decoder.tree_rules import Growth, TreeRule


class LevelDrafter(Proposer):
    """A proposer with a draft model. Instead of calling `propose`, a caller may grow a tree level by level with the
    other methods.
    """

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of forward passes so far, except passes over the prompt."""

    @property
    @abstractmethod
    def deepest(self) -> int:
        """Largest number of levels that the drafter can draft."""

    @abstractmethod
    def behind(self, text: Sequence[int]) -> int:
        """Number of unread tokens at the end of the text; 0 if the draft cannot continue this text."""

    def begin_tree(self) -> None:
        """Forgets the nodes of the previous tree."""

    @abstractmethod
    def catch_up(self, text: Sequence[int], growth: Growth[float]) -> Children:
        """Reads the unread tokens of the text; returns the best next tokens after the text, at most as many as the
        largest breadth of the growth rule.
        """

    @abstractmethod
    def catch_up_with_guesses(
        self, text: Sequence[int], growth: Growth[float], latest: int
    ) -> tuple[list[Children], list[int]]:
        """Like `catch_up`, but returns the best tokens after each of the last unread tokens (at most `latest`), and the
        text's own tokens at the guessed positions; the last guess, for the position after the text, has no such token.
        """

    @abstractmethod
    def forward_level(self, tree: TokenTree, nodes: Sequence[int], growth: Growth[float]) -> list[Children]:
        """Forwards nodes of one level; returns the best next tokens after each node, like `catch_up`."""

    def grown(
        self, text: Sequence[int], rule: TreeRule, deepest: int, expectation: Expectation | None = None
    ) -> Grown | None:
        """A whole tree of at most `deepest` levels after the text, which `keep` has not reduced yet; None if this
        drafter grows trees level by level. `expectation`: the acceptance model whose probabilities grow the tree.
        """
        del text, rule, deepest, expectation
        return None

    def keep(self, tree: TokenTree, kept: Sequence[int]) -> TokenTree:
        """Returns the tree reduced to the nodes `kept`."""
        return tree if len(kept) == len(tree) else tree.subtree(kept)

    def propose(self, text: Sequence[int], rule: TreeRule, room: int) -> Proposal:
        # Only the growth rule and the context limit this tree; costs do not.
        tree, before = TokenTree([text[-1]]), self.count
        if room >= 1 and self.behind(text):
            if found := self.grown(text, rule, min(room, self.deepest)):
                return Proposal(self.keep(found.tree, kept_nodes(found.tree, rule)), self.count - before)
            first = self.catch_up(text, rule.growth)
            tree = self.grow(tree, rule, first, min(room, self.deepest))
        return Proposal(tree, self.count - before)

    def grow(self, tree: TokenTree, rule: TreeRule, children: Children | None, deepest: int) -> TokenTree:
        """Grows a tree from its root; returns the subtree within the rule's budget. `children` are the best tokens
        after the root; None if the root must be forwarded.
        """

        def source(tree: TokenTree, nodes: Sequence[int], growth: Growth[float]) -> list[Children]:
            return [children] if children and nodes == [0] else self.forward_level(tree, nodes, growth)

        self.begin_tree()
        return self.keep(tree, grow(tree, rule, source, deepest))


class ModelDrafter(LevelDrafter):
    """Ranks nodes by `DraftProbabilities`; in greedy decoding, by the draft's own probabilities, sharpened by the
    growth rule's exponent.
    """

    def __init__(self, passes: Passes, probabilities: DraftProbabilities | None = None) -> None:
        self.passes = passes
        self._probabilities = probabilities

    def read(self, tokens: Sequence[int]) -> None:
        self.passes.read(tokens)

    def reserve(self, rows: int) -> None:
        self.passes.reserve(rows)

    def commit(self, path: Sequence[int]) -> None:
        self.passes.commit(path)

    @property
    def count(self) -> int:
        return self.passes.count

    @property
    def deepest(self) -> int:
        return self.passes.deepest

    def behind(self, text: Sequence[int]) -> int:
        return self.passes.behind(text)

    def begin_tree(self) -> None:
        self.passes.begin_tree()

    def catch_up(self, text: Sequence[int], growth: Growth[float]) -> Children:
        return _children(self.passes.best_after_text(text, self._ranking([len(text)], growth)))[0]

    def catch_up_with_guesses(
        self, text: Sequence[int], growth: Growth[float], latest: int
    ) -> tuple[list[Children], list[int]]:
        logits, positions = self.passes.after_latest(text, latest)
        guesses = _children(ranked(logits, self._ranking(positions, growth)))
        return guesses, [*text[len(text) - len(guesses) + 1 :]]

    def keep(self, tree: TokenTree, kept: Sequence[int]) -> TokenTree:
        if len(kept) < len(tree):
            self.passes.renumber(kept)
        return super().keep(tree, kept)

    def forward_level(self, tree: TokenTree, nodes: Sequence[int], growth: Growth[float]) -> list[Children]:
        children = _children(
            self.passes.best_after_level(tree, nodes, lambda positions: self._ranking(positions, growth))
        )
        return children * len(nodes) if len(children) == 1 else children

    def grown(
        self, text: Sequence[int], rule: TreeRule, deepest: int, expectation: Expectation | None = None
    ) -> Grown | None:
        by, end = self._probabilities, len(text)
        if by and by.greedy_from(end) != by.greedy_from(end + deepest):
            # The levels of this tree are ranked in two ways.
            return None
        return self.passes.grown(
            text, rule, deepest, lambda positions: self._ranking(positions, rule.growth), expectation
        )

    def _ranking(self, positions: Sequence[int], growth: Growth[float]) -> Ranking:
        """Ranking of logits that predict the tokens at `positions`."""
        count = int(growth.wide)
        if self._probabilities is None or self._probabilities.greedy_from(positions[0]):
            sharpened = Estimate([growth.sharpness] * len(positions)) if growth.sharpness != 1 else None
            return Ranking(count, sharpened, own=sharpened is not None)
        return Ranking(count, self._probabilities.estimate(positions), own=self._probabilities.noisy)


def best_children(
    logits: Float[Tensor, "N V"], count: int, estimate: Estimate | None = None, *, own: bool = False
) -> list[Children]:
    """The `count` most probable tokens of each row, with log-probabilities in float32; of equally probable tokens, the
    token with the lower id comes first. Tokens of probability 0 are left out; a row with NaN, plus infinity, or only
    such tokens has no children. `own`: children also have the draft's own log-probabilities.
    """
    return _children(ranked(logits, Ranking(count, estimate, own=own)))


def _children(best: Best) -> list[Children]:
    return [_possible(Children(*row)) for row in zip(*best, strict=True)]


def _possible(children: Children) -> Children:
    """Removes children of probability 0, which come last; all children if the first log-probability is not finite."""
    if math.isfinite(children.logprobs[-1]):
        return children
    if not math.isfinite(children.logprobs[0]):
        return Children([], [], lost=True)
    count = sum(map(math.isfinite, children.logprobs))
    return Children(children.tokens[:count], children.logprobs[:count], children.draft_logprobs[:count])
