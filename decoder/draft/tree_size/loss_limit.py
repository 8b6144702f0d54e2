"""The price of a second in tokens, the credit for drafting at a loss, and probes. A text starts with a credit, to which
each round's gain over plain decoding is added. Without credit, or after poor guesses, rounds are plain; an occasional
probe drafts to measure acceptance and decides whether credit is granted again.
"""

from itertools import islice

from decoder.draft.tree_size.acceptance_model import AcceptanceModel
from decoder.draft.tree_size.cost_model import CostModel

CREDIT = 4.0
CREDIT_OF_LOOKUPS = 2.5
"""Initial credit of lookup-only rounds; it is low, since lookups in a repetitive text soon gain credit."""
TRUSTED = 0.625
"""Largest fraction by which earlier texts change the initial credit."""
MUCH = 32.0
"""If earlier texts gained or lost this many tokens or more, the initial credit changes by the fraction `TRUSTED`."""
CREDIT_A_TOKEN = 0.006
"""Credit per committed token: if drafting always loses, this is the fraction of time that is lost in the long run."""
MOST_CREDIT = 12.0
STAKE = 0.5
"""Fraction of the credit that one round may lose, so that a few rejected trees do not use up the credit."""
LEAST_STAKE = 0.8
"""Number of tokens that a round may lose even if `STAKE` allows less: with less, no round could draft."""
OPTIMISM = 1.5
"""Factor on the recent acceptance probability in the decision whether drafting may pay. If this decision is wrongly
negative, nothing is drafted until the next probe.
"""
PATIENCE = 12
"""Number of tokens without a draft before a probe; up to a third fewer if drafting gained tokens in earlier texts."""
MOST_PATIENCE = 256
"""Failed probes increase the number of tokens before the next probe, at most to this number."""
LONGEST_CHAIN = 8
"""Length of the longest chain that is considered in the decision whether drafting pays."""
MEMORY = 0.98
"""Decay per round of the running sums of tokens and seconds."""
FIRST_TOKENS = 8.0
"""Initial value of the running sum of tokens."""
PLAIN_EVERY = 64
"""At least one of this many consecutive rounds is plain, so that the time of a plain round is measured."""


class LossLimit:
    def __init__(self, costs: CostModel, acceptance: AcceptanceModel, credit: float | None = None) -> None:
        """Calls of `earn` update `acceptance.gained` and `acceptance.speedup`."""
        self._costs = costs
        self._acceptance = acceptance
        self._trust = min(1.0, max(-1.0, acceptance.gained / MUCH))
        self._first_credit = CREDIT if credit is None else credit
        self.tokens = self._first_credit * (1 + TRUSTED * self._trust)
        """The credit: number of tokens that drafting may still lose."""
        self.patience = self._least_patience
        """Number of tokens without a draft after which a probe is due."""
        self.may_pay = self._chain_may_pay()
        self._since_plain = 0
        self._committed, self._time_s = FIRST_TOKENS, FIRST_TOKENS * costs.plain_s() / acceptance.speedup

    @property
    def stake(self) -> float:
        return min(self.tokens, max(LEAST_STAKE, STAKE * self.tokens))

    @property
    def price(self) -> float:
        """Tokens per second of the latest rounds, but at least those of plain decoding."""
        return max(1 / self._costs.plain_s(), self._committed / self._time_s)

    @property
    def may_draft(self) -> bool:
        return self.may_pay and not self.plain_due

    @property
    def plain_due(self) -> bool:
        """Whether the next round must be plain, unless it is a probe, so that the time of a plain round is measured."""
        return self._since_plain + 1 >= PLAIN_EVERY

    @property
    def could_pay(self) -> bool:
        """Whether drafting would pay if every guess were accepted."""
        return self._chain_pays(1.0)

    def probe_due(self, missed: int) -> bool:
        return missed >= self.patience

    def wait(self, tokens: int, rounds: int = 1) -> None:
        self._since_plain = 0
        self._count(tokens, rounds * self._costs.plain_s(), rounds)
        self.tokens = min(MOST_CREDIT, self.tokens + CREDIT_A_TOKEN * tokens)

    def go_without(self, tokens: int, round_s: float) -> None:
        """Counts a round whose gain or loss does not change this credit."""
        self._since_plain += 1
        self._count(tokens, round_s)

    def earn(self, tokens: int, seconds: float, rounds: int = 1) -> None:
        """Counts rounds with a draft and adds their gain to the credit. `seconds`: their total expected time."""
        self._since_plain += rounds
        self._count(tokens, seconds, rounds)
        gained = tokens - seconds / self._costs.plain_s()
        self._acceptance.earn(gained)
        self._acceptance.speedup = self.price * self._costs.plain_s()
        self.tokens = min(MOST_CREDIT, self.tokens + gained + CREDIT_A_TOKEN * tokens)
        self.may_pay = self._chain_may_pay()

    def record_probe(self, probability: float, paid: float = 0.0) -> None:
        """`probability`: fraction of the probe's guesses that were right. If drafting pays at this probability, grants
        credit again, plus the probe's cost of `paid` tokens; otherwise makes probes rarer.
        """
        self.may_pay = self._chain_may_pay()
        if self._chain_pays(probability):
            self.may_pay = True
            self.tokens = max(self.tokens, self._first_credit * (1 + TRUSTED * max(0.0, self._trust)) + paid)
            self.patience = self._least_patience
        else:
            self.patience = min(MOST_PATIENCE, 2 * self.patience) if self.may_pay else MOST_PATIENCE

    def _count(self, tokens: int, seconds: float, rounds: int = 1) -> None:
        decay = MEMORY**rounds
        self._committed = decay * self._committed + tokens
        self._time_s = decay * self._time_s + seconds

    @property
    def _least_patience(self) -> int:
        return round(PATIENCE * (1 - max(0.0, self._trust) / 3))

    def _chain_may_pay(self) -> bool:
        return self._chain_pays(min(1.0, OPTIMISM * self._acceptance.usual[0]))

    def _chain_pays(self, probability: float) -> bool:
        """Whether a chain of some length up to `LONGEST_CHAIN`, whose guesses are each right with this probability,
        commits more tokens than plain decoding in the same time.
        """
        tokens, step = 1.0, 1.0
        for round_s in islice(self._costs.chains_s(), LONGEST_CHAIN):
            step *= probability
            tokens += step
            if tokens * self._costs.plain_s() > round_s:
                return True
        return False
