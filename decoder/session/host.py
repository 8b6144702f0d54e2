"""The decoding loop of one method on one text, a round at a time: draft, verify, commit.

A `Session` owns its caches and nothing else; the pair is shared. It knows no text, no events and no other method.
Node 0 of a tree is the last committed token, whose keys and values the target does not have yet: it is the first row
of the verification, so one target pass both checks the tree and brings the next distribution, and nothing is computed
twice.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from decoder.analysis.tree_levels import share_of_depth
from decoder.config import Rules, RunConfig
from decoder.device import Stopwatch
from decoder.draft.model_drafter import Children, Drafter
from decoder.draft.tree_size.controller import NodeBudget
from decoder.draft.tree_size.cost_profile import measured
from decoder.models.pair import Pair
from decoder.session.knob_state import Controller, Turned
from decoder.session.protocol import AtStage, Budget, Outcome, go_on
from decoder.session.steering import Turn
from decoder.tree import TokenTree
from decoder.verify.greedy import accept

HEARD_FROM, HEARD = 4, 32
"""Rows; a draft that lags behind by more has missed rounds, and is tested on so many of the latest."""


class TreeSession:
    """Autoregressive, linear, fixed-tree and DynaTree decoding: one loop, other rules."""

    def __init__(self, pair: Pair, prompt_ids: Sequence[int], config: RunConfig, rules: Rules | None) -> None:
        """Prepares a session.

        Args:
            pair: The models.
            prompt_ids: The prompt, at least one token.
            config: Only its length limit is read.
            rules: How trees grow until a knob is turned; None drafts nothing.
        """
        self.text = list(prompt_ids)
        self._pair = pair
        self._controller = Controller(rules) if rules else None
        self._budget = Budget(pair.eos, config.max_new_tokens)
        self._stopwatch = Stopwatch(pair.target.device)
        self._longest = len(prompt_ids) + config.max_new_tokens
        self.target_cache = pair.target.new_cache(self._longest)
        self.drafter = Drafter(pair.draft, pair.vocabulary, self._longest) if rules else None
        self._nodes: NodeBudget | None = None
        if rules and rules.rule().by_cost:
            self._nodes = NodeBudget(measured(pair, len(self.text)), pair.calibration, self.text)
        self._reserve()

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
    def step(self, turns: tuple[Turn, ...], at_stage: AtStage = go_on) -> Outcome:
        """Draft, verify, commit: one target pass."""
        clock = self._stopwatch
        start = clock.now()
        turned = self._turn(turns)
        drafting = clock.now()
        tree, draft_forwards = self._draft()
        verifying = clock.now()
        outcome = Outcome(
            tree=tree,
            round_s=verifying - start,
            draft_s=verifying - drafting,
            draft_forwards=draft_forwards,
            knobs=self._controller.knobs if self._controller else None,
            rules=self._controller.rules if self._controller else None,
            room=self._pair.context - len(self.text),
            turned_before=turned,
        )
        clock.leave_out(at_stage("drafted", outcome))
        choices = self._verify(tree)
        committing = clock.now()
        self._accept(outcome, choices)
        outcome.target_forwards, outcome.verify_s = 1, committing - verifying
        outcome.round_s = clock.now() - start
        clock.leave_out(at_stage("verified", outcome))
        self._commit(outcome)
        outcome.commit_s = clock.now() - committing
        outcome.turned_after = self._learn(outcome)
        if self._nodes:
            self._nodes.timed(outcome.draft_s or 0.0, outcome.verify_s, clock.now() - start)
        outcome.round_s = clock.now() - start
        return outcome

    def close(self) -> None:
        """Nothing runs between rounds."""

    def _turn(self, turns: tuple[Turn, ...]) -> list[Turned]:
        turned = self._controller.apply(turns) if self._controller else []
        if turned:
            self._reserve()
        return turned

    def _reserve(self) -> None:
        """Room for the text, the root and the nodes that a tree keeps; the draft makes more where it tries more."""
        if self._controller is None or self.drafter is None:
            self.target_cache.reserve(self._longest + 1)
            return
        rows = self._longest + 1 + int(self._controller.rule.n_max)
        self.target_cache.reserve(rows)
        self.drafter.reserve(rows)

    def _draft(self) -> tuple[TokenTree, int]:
        tree = TokenTree([self.text[-1]])
        room = self._pair.context - len(self.text)
        if self.drafter is None or self._controller is None:
            return tree, 0
        behind = len(self.text) - self.drafter.cache.length
        pays = self._nodes is None or self._nodes.drafts(behind)
        if room < 1 or not pays:
            return tree, 0
        rule = self._controller.rule
        before = self.drafter.forwards
        children = self._catch_up(self.drafter, behind, int(rule.wide))
        grown = self.drafter.grow(tree, rule, children, deepest=room, budget=self._nodes)
        return grown, self.drafter.forwards - before

    def _catch_up(self, drafter: Drafter, behind: int, count: int) -> Children:
        """The draft's best next tokens; after rounds without it, its budget learns what it would have guessed."""
        if self._nodes is None or behind <= HEARD_FROM:
            return drafter.catch_up(self.text, count)
        *missed, last = drafter.catch_up_aloud(self.text, count, HEARD)
        self._nodes.hear([(guess.tokens, guess.logprobs) for guess in missed], self.text[-len(missed) :])
        return last

    def _verify(self, tree: TokenTree) -> list[int]:
        root = len(self.text) - 1
        positions = [root + depth for depth in tree.depths]
        logits = self._pair.target.forward(self.target_cache, tree.tokens, positions, tree.visible())
        return most_probable(logits, self._pair.vocabulary)

    def _accept(self, outcome: Outcome, choices: list[int]) -> None:
        tree = outcome.tree
        outcome.accepted, bonus = accept(tree, choices)
        burst = [*(tree.tokens[node] for node in outcome.accepted), bonus]
        outcome.committed, outcome.finished = self._budget.cut(burst)
        if self._nodes:
            self._nodes.learn(burst)

    def _commit(self, outcome: Outcome) -> None:
        path = [0, *outcome.accepted][: len(outcome.committed)]
        # The last committed token has no keys and values yet; the root before them got its own in this round.
        first = self.target_cache.length
        self.target_cache.keep([first + node for node in path])
        if self.drafter and outcome.draft_forwards:
            self.drafter.keep(self.drafter.rows_of(outcome.accepted[: len(outcome.committed)]))
        self.text.extend(outcome.committed)

    def _learn(self, outcome: Outcome) -> list[Turned]:
        if not self._controller or len(outcome.tree) == 1:
            return []
        return self._controller.learn(share_of_depth(outcome.accepted, max(outcome.tree.depths)))


def most_probable(logits: Float[Tensor, "N V"], vocabulary: int) -> list[int]:
    """The most probable token of each row, the lower id among equals; float32, as in transformers' generate."""
    known = logits if logits.shape[1] == vocabulary else logits[:, :vocabulary]
    scores = known.float()
    # numpy's argmax costs a tenth of torch's on a CPU.
    choices = scores.numpy().argmax(-1) if scores.device.type == "cpu" else scores.argmax(-1)
    tokens: list[int] = choices.tolist()
    return tokens
