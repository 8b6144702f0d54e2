"""Looked-up continuations ranked as coupled sampling chooses among them: by share and the position's noise.

The target takes the token of which the logarithm of the probability and the noise are most together. Knows neither
models nor trees.
"""

import math

from decoder.draft.lookup import Continuation
from decoder.sampling.noise import TokenNoise

RANKED = 16
"""So many of the most frequent next tokens are looked at."""


def ranked(ahead: Continuation, position: int, noise: TokenNoise) -> list[tuple[int, float, float]]:
    """The next tokens, each with the logarithm of its share and that plus its noise, the largest of these first.

    Args:
        ahead: What followed.
        position: Of the next token in the text.
        noise: What is known of how the target samples.
    """
    following = ahead.following(RANKED)
    tokens = [token for token, _ in following]
    logprobs = [math.log(share) for _, share in following]
    scores = [logprob + more for logprob, more in zip(logprobs, noise(position, tokens), strict=True)]
    return sorted(zip(tokens, logprobs, scores, strict=True), key=lambda found: -found[2])
