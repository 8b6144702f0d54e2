"""State of one round of `auto`: the drafted nodes, and the selection of the nodes that are worth verifying."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from decoder.draft.suffix_automaton import SuffixMatch
from decoder.draft.tree_size.lookup_guess import LookupGuess


@dataclass(slots=True)
class ModelGuesses:
    """The draft model's best next tokens after a node; the first `count` of these tokens are children of the node."""

    tokens: Sequence[int]
    logprobs: Sequence[float]
    familiar: Sequence[int]
    """Familiarity class of each token, by the length of the repetition that it continues; the last entry is the class
    of all other tokens.
    """
    shares: Sequence[float]
    """Acceptance probability of each token; the last entry is for all other tokens together."""
    first: int
    """Node number of the most probable child; further children have the next numbers."""
    count: int
    """Number of tokens that are children in the tree."""

    def beside(self, tokens: Sequence[int], probabilities: Sequence[float]) -> list[float]:
        """Acceptance probabilities of lookup guesses, given the draft model's guesses after the same node.

        A token that is guessed by both the draft model and the lookup has the draft model's probability. The lookup's
        other guesses share the draft model's remaining probability in proportion to their own probabilities.
        `probabilities` are the lookup's own acceptance probabilities of `tokens`; its last entry is for all other
        tokens.
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
    """Node number of the first child; further children have the next numbers."""
    tokens: Sequence[int]
    """Tokens of the children."""


@dataclass(slots=True)
class DraftedRound:
    """Drafted nodes of one round so far; the lists have one entry per node."""

    matches: list[SuffixMatch]
    """For each node: in the text followed by the node's path, the longest suffix that occurs earlier; see
    `SuffixMatch`.
    """
    probabilities: list[float] = field(default_factory=lambda: [1.0])
    """Path probability of each node: the probability that the target accepts the node and its ancestors."""
    model_guesses: dict[int, ModelGuesses] = field(default_factory=dict)
    """The draft model's guesses after each node; keys are the nodes."""
    lookup_children: dict[int, LookupChildren] = field(default_factory=dict)
    """Lookup guesses after each node, and the node's children from lookup; keys are the nodes."""
    calls: list[int] = field(default_factory=list)
    """Number of rows of each draft pass. The first pass reads text, and all later passes read nodes."""
    alone: bool = False
    """Whether the round drafts by suffix lookup alone."""
    missed: int = 0
    """One more than the number of tokens committed by plain rounds since the draft model's last round."""
    draft_s: float = 0.0
    """Expected seconds of the draft's passes."""
    kept: list[int] = field(default_factory=lambda: [0])
    """Nodes to verify, in ascending order from the root."""
    limit_s: float = 0.0
    """Time limit of the round's passes in seconds, which bounds the loss if all guesses are rejected."""
    price: float = 0.0
    """Price of one second in tokens: the run's tokens per second."""
    row_price: float = 0.0
    """Price of the verification of one more node, in tokens."""


def most_worth(gains: Sequence[float], price: float, seconds: Sequence[float]) -> list[int]:
    """Ascending indices of the items that maximise total gain minus the price of total time. Of items with equal gains,
    the first ones are chosen.

    Args:
        gains: Expected tokens of each item.
        price: Price of one second in tokens: the run's tokens per second.
        seconds: Total seconds with 0, 1, 2, ... items; at most len(seconds) - 1 items are chosen.
    """
    ranked = sorted(range(len(gains)), key=lambda index: -gains[index])
    best, count, tokens = -price * seconds[0], 0, 0.0
    for number, index in enumerate(ranked[: len(seconds) - 1], 1):
        tokens += gains[index]
        if (net := tokens - price * seconds[number]) > best:
            best, count = net, number
    return sorted(ranked[:count])
