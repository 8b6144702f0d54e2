"""Ranking of lookup guesses for coupled sampling, by log(share) + the target's noise, since the target chooses the
token with the largest sum of log-probability and noise.
"""

import math

from decoder.draft.lookup import Continuation
from decoder.sampling.noise import TokenNoise

RANKED = 16


def rank_guesses(ahead: Continuation, position: int, noise: TokenNoise) -> list[tuple[int, float, float]]:
    """Next tokens as (token, log share, log share + noise), best first; `position` is that of the next token."""
    following = ahead.following(RANKED)
    tokens = [token for token, _ in following]
    logprobs = [math.log(share) for _, share in following]
    scores = [logprob + more for logprob, more in zip(logprobs, noise(position, tokens), strict=True)]
    return sorted(zip(tokens, logprobs, scores, strict=True), key=lambda guess: -guess[2])
