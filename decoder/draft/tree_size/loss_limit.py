"""Whether drafting is worth a try: how many tokens guesses may still lose, and when an unused draft is tested.

A text begins with some credit; guesses that fail spend it and guesses that hold earn it. Without credit, or where
guesses have become hopeless, rounds go without a draft. Now and then the draft is tested: it reads what it has missed,
and what it would have guessed decides whether it is given credit again. Knows chances and costs, neither trees nor
clocks.
"""

from collections.abc import Sequence

from decoder.draft.tree_size.acceptance_model import AcceptanceModel
from decoder.draft.tree_size.cost_model import Costs

CREDIT = 4.0
"""Tokens that a text may lose to guesses that fail, to begin with."""
TRUST_CREDIT = 2.5
"""So many more where other texts have shown that drafting pays, and less where they have shown that it does not."""
MUCH = 32.0
"""Tokens gained or lost by drafting in other texts at which that is certain."""
CREDIT_A_TOKEN = 0.006
"""What each token adds: on a text where nothing can be gained, drafting costs this share in the long run."""
MOST_CREDIT = 12.0
"""What earlier rounds have gained is not staked again beyond this."""
STAKE = 0.5
"""The share of the credit that one round may lose, so that a few bad guesses do not end all drafting."""
LEAST_STAKE = 0.8
"""One round may lose so many tokens as long as there is credit for them: less would not pay for any draft."""
HOPE = 1.5
"""Drafting may pay where it would if guesses were likelier by this than they have been lately."""
PATIENCE = 12
"""Plain rounds after which the draft is tested; two thirds where other texts have shown that drafting pays."""
MOST_PATIENCE = 256
"""It is tested less often the longer its guesses fail, since reading what it missed takes time; but not less often."""
LONGEST_CHAIN = 8


class LossLimit:
    """Of one text."""

    def __init__(self, costs: Costs, acceptance: AcceptanceModel) -> None:
        """Begins a text.

        Args:
            costs: What rounds cost.
            acceptance: What other texts have told of the draft's guesses; this one adds to it.
        """
        self._costs = costs
        self._acceptance = acceptance
        self._trust = min(1.0, max(-1.0, acceptance.gained / MUCH))
        self.tokens = CREDIT + self._trust * TRUST_CREDIT
        """That drafting may lose from here on."""
        self.patience = self._least_patience
        """The draft is tested when it has missed so many rows."""
        self.hopeful = self._may_pay()
        """Whether drafting may pay, as far as guesses of late tell."""

    @property
    def stake(self) -> float:
        """Tokens that the next round may lose."""
        return min(self.tokens, max(LEAST_STAKE, STAKE * self.tokens))

    def wait(self, tokens: int) -> None:
        """A round without a draft has brought so many tokens."""
        self.tokens = min(MOST_CREDIT, self.tokens + CREDIT_A_TOKEN * tokens)

    def earn(self, tokens: int, gained: float) -> None:
        """A round with a draft has brought so many tokens, `gained` more than plain ones would have in its time."""
        self._acceptance.earn(gained)
        self.tokens = min(MOST_CREDIT, self.tokens + gained + CREDIT_A_TOKEN * tokens)
        self.hopeful = self._may_pay()

    def probe_draft(
        self, guesses: Sequence[tuple[Sequence[int], Sequence[float]]], text: Sequence[int], paid: float
    ) -> None:
        """Takes note of what the draft would have guessed for the latest tokens of a text that went without it.

        What was easy or hard long ago says little of what comes. Where the guesses would have paid, they are given
        credit again; where not, the draft is tested less often.

        Args:
            guesses: Its best tokens and their log-probabilities.
            text: What the target chose.
            paid: Tokens that catching up is going to cost this round.
        """
        hits = 0
        for (tokens, logprobs), token in zip(guesses, text, strict=True):
            shares = self._acceptance.shares(logprobs)
            self._acceptance.learn(logprobs, shares, tokens.index(token) if token in tokens else None)
            self._acceptance.see(shares, len(tokens))
            hits += token == tokens[0]
        self.hopeful = self._may_pay()
        if self._chain_pays(hits / len(text)):
            self.hopeful = True
            self.tokens = max(self.tokens, CREDIT + max(0.0, self._trust) * TRUST_CREDIT + paid)
            self.patience = self._least_patience
        else:
            self.patience = min(MOST_PATIENCE, 2 * self.patience) if self.hopeful else MOST_PATIENCE

    @property
    def _least_patience(self) -> int:
        return round(PATIENCE * (1 - max(0.0, self._trust) / 3))

    def _may_pay(self) -> bool:
        return self._chain_pays(min(1.0, HOPE * self._acceptance.usual[0]))

    def _chain_pays(self, chance: float) -> bool:
        """Whether a chain of some length brings more tokens than rounds of `ar` in its time, each guess as likely."""
        costs = self._costs
        tokens, step, drafts_s = 1.0, 1.0, costs.host.seconds(1) + costs.catch_up.seconds(1)
        for length in range(1, LONGEST_CHAIN + 1):
            step *= chance
            tokens += step
            if tokens * costs.plain_s() > drafts_s + costs.verify.seconds(1 + length):
                return True
            drafts_s += costs.draft.seconds(1)
        return False
