"""Drafted nodes of one round of `auto`, and the choice of nodes worth their time. Decides nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from decoder.draft.suffix_automaton import Place
from decoder.draft.tree_size.lookup_guess import LookupGuess


@dataclass(slots=True)
class Grown:
    """The best next tokens after a node, and where its children are."""

    tokens: Sequence[int]
    logprobs: Sequence[float]
    familiar: Sequence[int]
    """How familiar each of them is, and then the likeliest of all others."""
    shares: Sequence[float]
    """Their probabilities, and then that of all others."""
    first: int
    """Node of the most probable child."""
    count: int
    """Children in the tree."""

    def beside(self, tokens: Sequence[int], probabilities: Sequence[float]) -> list[float]:
        """What the probabilities of other guesses are beside the draft's: of a token that both know the draft's own.

        All others share what the draft leaves, in proportion to their probabilities where it guesses at none of those.
        """
        guesses = list(zip(tokens, probabilities, strict=False))
        # Not 1 less the others: of a token that is nearly certain nothing would be left to divide by.
        unknown = probabilities[-1] + sum(probability for token, probability in guesses if token not in self.tokens)
        return [
            self.shares[self.tokens.index(token)] if token in self.tokens else self.shares[-1] * probability / unknown
            for token, probability in guesses
        ]


@dataclass(slots=True)
class LookedUp:
    """Lookup guesses after a node, and the first of its children that only the lookup has guessed."""

    guess: LookupGuess
    first: int
    tokens: Sequence[int]


@dataclass
class DraftedRound:
    """Drafted nodes of one round so far; lists by node."""

    places: list[Place]
    """Earlier occurrence of each path in the text."""
    probabilities: list[float] = field(default_factory=lambda: [1.0])
    """Acceptance probability of each node's path."""
    grown: dict[int, Grown] = field(default_factory=dict)
    looked_up: dict[int, LookedUp] = field(default_factory=dict)
    calls: list[int] = field(default_factory=list)
    """Rows of the draft's forward passes; of text in the first."""
    alone: bool = False
    """Whether it drafts by lookups alone."""
    missed: int = 0
    """Tokens that have come by plain rounds since the draft ran, and one."""
    draft_s: float = 0.0
    """Expected time of these passes."""
    kept: list[int] = field(default_factory=lambda: [0])
    limit_s: float = 0.0
    """Most seconds that its passes may take if all guesses may fail."""
    price: float = 0.0
    """Tokens that a second is worth in this round."""
    row_price: float = 0.0
    """Tokens that the verification of one more node is worth, on average."""


def most_worth(gains: Sequence[float], price: float, seconds: Sequence[float]) -> list[int]:
    """The things to take so that their gains exceed the price of their time by most, rising; ties by their order.

    Args:
        gains: What each is expected to bring, in tokens.
        price: Tokens that a second is worth.
        seconds: How long it takes with none, one, two, ... of them; as many may be taken as have a time.
    """
    ranked = sorted(range(len(gains)), key=lambda index: -gains[index])
    best, count, tokens = -price * seconds[0], 0, 0.0
    for taken, index in enumerate(ranked[: len(seconds) - 1], 1):
        tokens += gains[index]
        if (net := tokens - price * seconds[taken]) > best:
            best, count = net, taken
    return sorted(ranked[:count])
