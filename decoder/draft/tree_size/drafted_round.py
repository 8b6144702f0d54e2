"""State of one round of `auto`: the drafted nodes, and the selection of the nodes that are worth verifying."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from decoder.draft.suffix_automaton import SuffixMatch
from decoder.draft.tree_size.lookup_guess import LookupGuess


@dataclass(slots=True)
class ModelGuesses:
    """The draft's best tokens after a node, the first `count` of which are children."""

    tokens: Sequence[int]
    logprobs: Sequence[float]
    familiar: Sequence[int]
    """Familiarity class of each token; the last entry is that of all others."""
    shares: Sequence[float]
    """Acceptance probability of each token; the last entry is that of all others."""
    first: int
    """Node number of the first child; the others have the next numbers."""
    count: int

    def beside(self, tokens: Sequence[int], probabilities: Sequence[float]) -> list[float]:
        """Acceptance probabilities of lookup guesses beside these ones: a token that both guess has the model's, and
        the lookup's other guesses share the model's rest in proportion to their own `probabilities`, whose last entry
        is for all other tokens.
        """
        guesses = list(zip(tokens, probabilities, strict=False))
        # The lookup's probability of tokens outside `self.tokens` is computed as a sum, since 1 - p may round to 0.
        unknown = probabilities[-1] + sum(probability for token, probability in guesses if token not in self.tokens)
        return [
            self.shares[self.tokens.index(token)] if token in self.tokens else self.shares[-1] * probability / unknown
            for token, probability in guesses
        ]


@dataclass(slots=True)
class LookupChildren:
    """Lookup guesses after a node, and the children that only the lookup guessed."""

    guess: LookupGuess
    first: int
    tokens: Sequence[int]


@dataclass(slots=True)
class DraftedRound:
    """One entry per node."""

    matches: list[SuffixMatch]
    """Longest suffix, of the text followed by the node's path, that occurs earlier."""
    probabilities: list[float] = field(default_factory=lambda: [1.0])
    """Path probability of each node."""
    model_guesses: dict[int, ModelGuesses] = field(default_factory=dict)
    lookup_children: dict[int, LookupChildren] = field(default_factory=dict)
    calls: list[int] = field(default_factory=list)
    """Rows of each draft pass; the first reads text."""
    alone: bool = False
    missed: int = 0
    """One more than the tokens of plain rounds since the draft model's last round."""
    draft_s: float = 0.0
    kept: list[int] = field(default_factory=lambda: [0])
    limit_s: float = 0.0
    """Time limit of the round's passes, which bounds the loss if all guesses are rejected."""
    price: float = 0.0
    row_price: float = 0.0


def most_worth(gains: Sequence[float], price: float, seconds: Sequence[float]) -> list[int]:
    """Ascending indices of the items with the most gain minus the price of their time; of equal gains the first.
    `seconds` are totals with 0, 1, 2, ... items.
    """
    ranked = sorted(range(len(gains)), key=lambda index: -gains[index])
    best, count, tokens = -price * seconds[0], 0, 0.0
    for number, index in enumerate(ranked[: len(seconds) - 1], 1):
        tokens += gains[index]
        if (net := tokens - price * seconds[number]) > best:
            best, count = net, number
    return sorted(ranked[:count])
