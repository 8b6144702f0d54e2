"""The proposer of `auto`: guesses of a draft model and of suffix lookup grow one tree, whose size the tree size
controller chooses. A token that both guess counts as the model's guess. In rounds where lookup alone is expected to
give more tokens per second, the model does not run; it reads the tokens of these rounds later.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from functools import partial

from decoder.draft.growth import Children, grow, may_grow
from decoder.draft.lookup import SuffixIndex
from decoder.draft.model_drafter import LevelDrafter
from decoder.draft.proposer import Proposal, Proposer
from decoder.draft.tree_size.acceptance_model import AcceptanceModel
from decoder.draft.tree_size.controller import MOST_NODES, TreeSizeController
from decoder.draft.tree_size.drafted_round import LookupGuess
from decoder.forward.compiled.growth import Expectation
from decoder.sampling.noise import DraftProbabilities
from decoder.tree import TokenTree
from decoder.tree_rules import Growth, TreeRule, breadth

PROBED_FROM, PROBED_ROWS = 4, 32
"""If the model has more than `PROBED_FROM` tokens to read, a probe compares its guesses with the latest `PROBED_ROWS`
of these tokens.
"""


class AutoDrafter(Proposer):
    """Grows trees by a draft model and suffix lookup, or by suffix lookup alone if there is no draft model."""

    def __init__(
        self, sizes: TreeSizeController, model: LevelDrafter | None, probabilities: DraftProbabilities | None = None
    ) -> None:
        """`probabilities` has the target's sampling noise, which lookup uses; None if decoding is greedy."""
        self.model = model
        self._probabilities = probabilities
        self._sizes = sizes
        self._past = SuffixIndex()

    def read(self, tokens: Sequence[int]) -> None:
        self._past.extend(tokens)
        if self.model:
            self.model.read(tokens)

    def reserve(self, rows: int) -> None:
        if self.model:
            self.model.reserve(rows)

    def propose(self, text: Sequence[int], rule: TreeRule, room: int) -> Proposal:
        if self.model:
            self._sizes.pauses.allowed = rule.budget.lookup
            if self._sizes.stay_plain():
                return Proposal(TokenTree([text[-1]]), 0)
            if limited := self._sizes.follow(rule):
                return self._followed(self.model, text, limited, room)
        tree, guess = TokenTree([text[-1]]), None
        # Without a draft model, lookups are the only guesses, and do not pause.
        if rule.budget.lookup and (self.model is None or self._sizes.pauses.next_round()):
            guess = self._looked_up(text)
        model = self.model
        before, behind = (model.count, model.behind(text) or None) if model else (0, None)
        source = self._sizes.source(behind, guess)
        if room >= 1 and source != "plain":
            first = self._after_text(model, text, rule) if model and source == "draft" else None
            tree.lost = first is not None and first.lost
            # A node is never worth more than its ancestors, so no node deeper than `MOST_NODES` is ever verified.
            chosen = _MixedTree(tree, rule, self._sizes).grow(model, first, guess, min(room, MOST_NODES))
            tree = model.keep(tree, chosen) if model else tree.subtree(chosen)
        return Proposal(tree, model.count - before if model else 0)

    def _followed(self, model: LevelDrafter, text: Sequence[int], rule: TreeRule, room: int) -> Proposal:
        """Drafts the tree of a round that follows an earlier decision, whose limits are in `rule`."""
        tree, before, calls = TokenTree([text[-1]]), model.count, list[int]()
        if room >= 1 and (behind := model.behind(text)):
            calls.append(behind)
            acceptance = self._sizes.acceptance
            expectation = Expectation(acceptance.sharpness, acceptance.undrafted)
            if found := model.grown(text, rule, min(room, model.deepest), expectation):
                tree = found.tree
                calls += found.calls
            else:
                calls += self._grow_by_level(model, text, tree, rule, min(room, model.deepest))
            tree = model.keep(tree, self._sizes.worth_verifying(tree.path_logprobs))
        self._sizes.record_followed(calls, len(tree))
        return Proposal(tree, model.count - before)

    def _grow_by_level(
        self, model: LevelDrafter, text: Sequence[int], tree: TokenTree, rule: TreeRule, deepest: int
    ) -> list[int]:
        """Grows a tree after the text by the acceptance model; returns the number of rows of each pass over a level."""
        calls = list[int]()
        model.begin_tree()
        first = model.catch_up(text, rule.growth)

        def source(tree: TokenTree, nodes: Sequence[int], growth: Growth[float]) -> list[Children]:
            if nodes == [0]:
                return [_expected(first, self._sizes.acceptance)]
            calls.append(len(nodes))
            found = model.forward_level(tree, nodes, growth)
            return [_expected(children, self._sizes.acceptance) for children in found]

        grow(tree, rule, source, deepest)
        return calls

    def record_choices(self, burst: Sequence[int]) -> None:
        self._sizes.learn(burst)
        if self.model:
            self.model.record_choices(burst)

    def commit(self, path: Sequence[int]) -> None:
        if self.model:
            self.model.commit(path)

    def record_times(self, draft_s: float, verify_s: float, round_s: float) -> None:
        self._sizes.record_times(draft_s, verify_s, round_s)

    def _looked_up(self, text: Sequence[int]) -> LookupGuess | None:
        self._past.extend(text[len(self._past) :])
        continuation = self._past.continuation()
        if continuation is None:
            return None
        noise = self._probabilities.noise_from(len(text)) if self._probabilities else None
        return LookupGuess(continuation, self._sizes.lookups, len(text), noise)

    def _after_text(self, model: LevelDrafter, text: Sequence[int], rule: TreeRule) -> Children | None:
        """The model's guesses after the text. If the model has many tokens to read, since it did not run in recent
        rounds, a probe first compares its guesses with these tokens.
        """
        model.begin_tree()
        if self._sizes.missed <= PROBED_FROM:
            last = model.catch_up(text, rule.growth)
        else:
            (*missed, last), tokens = model.catch_up_with_guesses(text, rule.growth, PROBED_ROWS)
            if missed and all(guess.tokens for guess in missed):
                self._sizes.probe_draft([(guess.tokens, guess.logprobs) for guess in missed], tokens)
        return last


def _expected(children: Children, acceptance: AcceptanceModel) -> Children:
    if not children.tokens:
        return children
    log_shares = acceptance.log_shares(children.logprobs)
    return Children(children.tokens, log_shares, children.draft_logprobs or children.logprobs)


def _logarithms(probabilities: Sequence[float]) -> list[float]:
    """Logarithms of probabilities, which may have been rounded to 0."""
    return [math.log(max(probability, sys.float_info.min)) for probability in probabilities]


class _MixedTree:
    def __init__(self, tree: TokenTree, rule: TreeRule, sizes: TreeSizeController) -> None:
        self.tree = tree
        self._rule, self._sizes = rule, sizes
        self._looked_up = set[int]()

    def grow(
        self, model: LevelDrafter | None, first: Children | None, guess: LookupGuess | None, deepest: int
    ) -> list[int]:
        """Returns the nodes that are worth verifying. `first` and `guess`: the model's and the lookup's guesses after
        the root, if any; `deepest`: largest number of levels that the context allows.
        """
        tree, depth, level = self.tree, 0, [0]
        options, guesses = {0: first} if first and first.tokens else {}, {0: guess} if guess else {}
        while options or guesses:
            parents, level = level, list[int]()
            for node in parents:
                if found := options.get(node):
                    level += self._branch(node, found)
                if found_earlier := guesses.get(node):
                    level += self._branch_by_lookup(node, found_earlier)
            depth += 1
            if not level or depth >= deepest:
                break
            guesses = self._lookup_guesses(level, guesses) if guesses else {}
            options = self._model_guesses(model, level, options) if model and options else {}
        if self._looked_up:
            tree.origins = ["root", *("lookup" if node in self._looked_up else "draft" for node in range(1, len(tree)))]
        return self._sizes.keep()

    def _branch(self, node: int, found: Children) -> range:
        accepted = self._sizes.add_children(node, found.tokens, found.logprobs, partial(breadth, self._rule.growth))
        logprobs, own = _logarithms(accepted), found.draft_logprobs or found.logprobs
        return self.tree.grow(node, found.tokens[: len(logprobs)], logprobs, own[: len(logprobs)])

    def _branch_by_lookup(self, node: int, guess: LookupGuess) -> range:
        tokens, probabilities = self._sizes.add_lookups(node, guess)
        children = self.tree.grow(node, tokens, _logarithms(probabilities))
        self._looked_up.update(children)
        return children

    def _lookup_guesses(self, level: Sequence[int], above: Mapping[int, LookupGuess]) -> dict[int, LookupGuess]:
        """Lookup guesses after the nodes of a level, except nodes whose path does not occur earlier in the text."""
        tree, guesses = self.tree, dict[int, LookupGuess]()
        for node in level:
            parent_guess = above.get(tree.parents[node])
            if parent_guess and (guess := parent_guess.after(tree.tokens[node])):
                guesses[node] = guess
        return guesses

    def _model_guesses(
        self, model: LevelDrafter, level: Sequence[int], above: Mapping[int, Children]
    ) -> dict[int, Children]:
        """The model's guesses after those nodes of a level whose parents the model has read; empty if the model cannot
        draft deeper, or if a pass is not worth its time.
        """
        if self.tree.depths[level[0]] >= model.deepest:
            return {}
        readable = [node for node in level if self.tree.parents[node] in above]
        parents = may_grow(self.tree, readable, self._rule)
        parents = self._sizes.worth_growing(parents)
        if not parents:
            return {}
        guesses = model.forward_level(self.tree, parents, self._rule.growth)
        self.tree.lost |= any(guess.lost for guess in guesses)
        return {node: guess for node, guess in zip(parents, guesses, strict=True) if guess.tokens}
