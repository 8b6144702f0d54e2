"""Loss limit: the price of a second in tokens, the credit for drafting at a loss, and when to probe a draft.

A text begins with some credit; guesses that fail spend it and guesses that hold earn it. Without credit, or where
guesses have become too poor, rounds go without a draft, and a probe decides now and then whether credit is given again.
Knows probabilities and costs, neither trees nor clocks.
"""

from itertools import islice

from decoder.draft.tree_size.acceptance_model import AcceptanceModel
from decoder.draft.tree_size.cost_model import CostModel

CREDIT = 4.0
"""Tokens that a text may lose to guesses that fail, to begin with."""
CREDIT_OF_LOOKUPS = 2.5
"""The same by lookups alone: a text that repeats itself does so again, and earns more soon."""
TRUSTED = 0.625
"""This share of it more where other texts have shown that drafting pays, less where they have shown the contrary."""
MUCH = 32.0
"""Tokens gained or lost by drafting in other texts at which that is certain."""
CREDIT_A_TOKEN = 0.006
"""Credit added by each token: on a text where nothing can be gained, drafting costs this share in the long run."""
MOST_CREDIT = 12.0
"""Most credit: gains of earlier rounds are not staked beyond it."""
STAKE = 0.5
"""The share of the credit that one round may lose, so that a few bad guesses do not end all drafting."""
LEAST_STAKE = 0.8
"""One round may lose so many tokens as long as there is credit for them: less would not pay for any draft."""
OPTIMISM = 1.5
"""Drafting may pay where it would if guesses were likelier by this than they have been lately."""
PATIENCE = 12
"""Plain rounds after which the draft is tested; two thirds where other texts have shown that drafting pays."""
MOST_PATIENCE = 256
"""It is tested less often the longer its guesses fail, since reading what it missed takes time; but not less often."""
LONGEST_CHAIN = 8
MEMORY = 0.98
"""Share of the running sums that a round leaves."""
FIRST_TOKENS = 4.0
"""Plain rounds that these sums begin with."""
PLAIN_EVERY = 64
"""So many rounds after the last plain one another is run, to know what it costs."""


class LossLimit:
    """Loss limit of one text."""

    def __init__(self, costs: CostModel, acceptance: AcceptanceModel, credit: float | None = None) -> None:
        """Begins a text, which adds to what other texts have shown of these guesses; without a credit, `CREDIT`."""
        self._costs = costs
        self._acceptance = acceptance
        self._trust = min(1.0, max(-1.0, acceptance.gained / MUCH))
        self._given = CREDIT if credit is None else credit
        self.tokens = self._given * (1 + TRUSTED * self._trust)
        """Tokens that drafting may still lose."""
        self.patience = self._least_patience
        """The draft is tested when it has missed so many rows."""
        self.may_pay = self._chain_may_pay()
        """Whether drafting may pay, as far as guesses of late tell."""
        self._since_plain = 0
        self._committed, self._time_s = FIRST_TOKENS, FIRST_TOKENS * costs.plain_s()

    @property
    def stake(self) -> float:
        """Tokens that the next round may lose."""
        return min(self.tokens, max(LEAST_STAKE, STAKE * self.tokens))

    @property
    def price(self) -> float:
        """Price of a second in tokens: those that the run commits a second."""
        return max(1 / self._costs.plain_s(), self._committed / self._time_s)

    @property
    def may_draft(self) -> bool:
        """Whether the next round may draft though no probe is due."""
        return self.may_pay and not self.plain_due

    @property
    def plain_due(self) -> bool:
        """Whether the next round is a plain one unless the draft is tested, to know what that costs."""
        return self._since_plain + 1 >= PLAIN_EVERY

    @property
    def could_pay(self) -> bool:
        """Whether guesses that are always right would."""
        return self._chain_pays(1.0)

    def probe_due(self, missed: int) -> bool:
        """Whether the draft is tested, of which the text has gone on without it for so many tokens."""
        return missed >= self.patience

    def wait(self, tokens: int) -> None:
        """A round without a draft has brought so many tokens."""
        self._since_plain = 0
        self._count(tokens, self._costs.plain_s())
        self.tokens = min(MOST_CREDIT, self.tokens + CREDIT_A_TOKEN * tokens)

    def go_without(self, tokens: int, round_s: float) -> None:
        """A round that drafted otherwise, at no risk of this credit, has brought so many tokens in this time."""
        self._since_plain += 1
        self._count(tokens, round_s)

    def earn(self, tokens: int, round_s: float) -> None:
        """A round with a draft has brought so many tokens in this time, by what it was expected to take."""
        self._since_plain += 1
        self._count(tokens, round_s)
        gained = tokens - round_s / self._costs.plain_s()
        self._acceptance.earn(gained)
        self.tokens = min(MOST_CREDIT, self.tokens + gained + CREDIT_A_TOKEN * tokens)
        self.may_pay = self._chain_may_pay()

    def probed(self, probability: float, paid: float = 0.0) -> None:
        """Takes note of a probe in which this share of the guesses was right; it is going to cost so many tokens.

        Where guesses that are right so often pay, drafting is given credit again; else it is tested less often.
        """
        self.may_pay = self._chain_may_pay()
        if self._chain_pays(probability):
            self.may_pay = True
            self.tokens = max(self.tokens, self._given * (1 + TRUSTED * max(0.0, self._trust)) + paid)
            self.patience = self._least_patience
        else:
            self.patience = min(MOST_PATIENCE, 2 * self.patience) if self.may_pay else MOST_PATIENCE

    def _count(self, tokens: int, round_s: float) -> None:
        self._committed = MEMORY * self._committed + tokens
        self._time_s = MEMORY * self._time_s + round_s

    @property
    def _least_patience(self) -> int:
        return round(PATIENCE * (1 - max(0.0, self._trust) / 3))

    def _chain_may_pay(self) -> bool:
        return self._chain_pays(min(1.0, OPTIMISM * self._acceptance.usual[0]))

    def _chain_pays(self, probability: float) -> bool:
        """Whether a chain of some length brings more tokens than rounds of `ar` in its time, each guess as likely."""
        tokens, step = 1.0, 1.0
        for round_s in islice(self._costs.chains_s(), LONGEST_CHAIN):
            step *= probability
            tokens += step
            if tokens * self._costs.plain_s() > round_s:
                return True
        return False
