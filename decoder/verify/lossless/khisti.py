"""khisti: a tournament selects one of the sampled tokens. This winner is then accepted or refused as in `naive`, with
the winner's distribution r in place of q.

Based on the two-step theorem of Khisti et al. 2025 (importance sampling, then single-draft speculative sampling);
Thomas et al. 2026, algorithms 5, 10 and 15. A match may be decided by any rule: the verifier is lossless if r is the
winner's true distribution; the rule affects only the acceptance rate. Khisti et al. use a linear program. This module
replaces it with one sweep over the tokens in ascending order of p - q1 q2, where q1 and q2 are the distributions of the
two candidates. In the sweep, each token wins against later tokens as often as necessary for its probability to reach p,
and otherwise loses. (With descending order, the gap to the acceptance bound was six times as large on toy pairs.)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import TypeVar

import numpy as np
from jaxtyping import Float, Int

from decoder.verify.lossless import naive
from decoder.verify.lossless.random_generator import RandomGenerator
from decoder.verify.lossless.rows import Row
from decoder.verify.lossless.top_down import Solver

T = TypeVar("T")


@dataclass(frozen=True)
class Match:
    """The match of two independent candidate tokens in a tournament."""

    law: Row
    """Distribution of the winner."""
    place: Int[np.ndarray, "V"]
    """Rank of each token in ascending order of p - q1 q2."""
    share: Float[np.ndarray, "V"]
    """Probability that a token wins against a token of higher rank."""

    def beats(self, one: int, other: int) -> float:
        """Probability that token `one` wins against token `other`."""
        return float(self.share[one] if self.place[one] < self.place[other] else 1 - self.share[other])


def match(target_probs: Row, one: Row, other: Row) -> Match:
    """The match of candidates with the distributions `one` and `other`. Takes O(V log V) time on the host."""
    order = np.argsort(target_probs - one * other, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    law, share = np.zeros_like(target_probs), np.ones_like(target_probs)
    possible = order[(one + other)[order] > 0]
    later_one, later_other = _sums_after(one[possible]), _sums_after(other[possible])
    # For each candidate: the probability that it is a token of lower rank than the current token, and loses against the
    # current token.
    left_one = left_other = 0.0
    for token, a, b, target_probability, more_one, more_other in zip(
        possible.tolist(),
        one[possible].tolist(),
        other[possible].tolist(),
        target_probs[possible].tolist(),
        later_one.tolist(),
        later_other.tolist(),
        strict=True,
    ):
        has = a * b + a * left_other + b * left_one
        open_ = a * more_other + b * more_one
        share_of_a = min(1.0, max(0.0, (target_probability - has) / open_)) if open_ > 0 else 1.0
        law[token], share[token] = has + share_of_a * open_, share_of_a
        left_one += (1 - share_of_a) * a
        left_other += (1 - share_of_a) * b
    return Match(law, place, share)


def _sums_after(row: Row) -> Row:
    return np.concatenate([np.cumsum(row[:0:-1])[::-1], [0.0]]) if len(row) else row


def tournament(entries: Sequence[T], meet: Callable[[T, T], T]) -> T:
    """Knock-out: in each round, adjacent entries meet; an entry without an opponent advances."""
    while len(entries) > 1:
        odd = entries[len(entries) - len(entries) % 2 :]
        entries = [*(meet(one, other) for one, other in zip(entries[::2], entries[1::2], strict=False)), *odd]
    return entries[0]


def solve(target_probs: Row, draft_probs: Row, drawn: Sequence[int], generator: RandomGenerator) -> int:
    def meet(one: tuple[Row, int], other: tuple[Row, int]) -> tuple[Row, int]:
        pairing = match(target_probs, one[0], other[0])
        first = one[1] == other[1] or generator.bernoulli(pairing.beats(one[1], other[1]))
        return pairing.law, one[1] if first else other[1]

    law, winner = tournament([(draft_probs, token) for token in drawn], meet)
    return naive.solve(target_probs, law, [winner], generator)


def acceptance_rate(target_probs: Row, draft_probs: Row, draws: int) -> float:
    """A lower bound of the acceptance rate, since a token from the residual may also equal a sampled token."""
    winner_law = tournament([draft_probs] * draws, lambda one, other: match(target_probs, one, other).law)
    return float(np.minimum(target_probs, winner_law).sum())


def branching(target_probs: Row, draft_probs: Row, drawn: Sequence[int]) -> dict[int, float]:
    """Also counts the case that a token from the residual equals a sampled token."""
    law, winners = tournament([(draft_probs, {token: 1.0}) for token in drawn], partial(_meet, target_probs))
    tokens = reduce(
        np.add, (probability * naive.token_law(target_probs, law, token) for token, probability in winners.items())
    )
    return {token: float(tokens[token]) for token in drawn}


def _meet(
    target_probs: Row, one: tuple[Row, dict[int, float]], other: tuple[Row, dict[int, float]]
) -> tuple[Row, dict[int, float]]:
    """Winner's distribution for random tokens, and probability that each of the given tokens wins."""
    pairing = match(target_probs, one[0], other[0])
    winners = dict.fromkeys([*one[1], *other[1]], 0.0)
    for first, first_probability in one[1].items():
        for second, second_probability in other[1].items():
            wins = 1.0 if first == second else pairing.beats(first, second)
            winners[first] += first_probability * second_probability * wins
            winners[second] += first_probability * second_probability * (1 - wins)
    return pairing.law, winners


KHISTI = Solver(acceptance_rate, branching)
