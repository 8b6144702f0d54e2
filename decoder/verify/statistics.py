"""Statistics of a sampled round, with which users can check a running decoder. They do not affect decoding.

There are two sums over the committed tokens: the sum of surprises minus their expectations, and the sum of top-1 hits
minus their expectations. In any lossless decoder and for any text, both sums have mean 0 (martingales). So a sum far
from 0 shows a faulty decoder; a sum near 0 proves nothing.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from torch import Tensor

from decoder.events import Verification

_LEAST = 1e-30
"""The surprise of an impossible token would be infinite."""


def token_statistics(target_probs: Float[Tensor, "D V"], tokens: Sequence[int]) -> Verification:
    """From the target's distribution at each token's position."""
    rows = target_probs.double().cpu().numpy()
    logs = np.log(np.maximum(rows, _LEAST))
    entropies = -(rows * logs).sum(-1)
    places = np.arange(len(tokens))
    best = rows.max(-1)
    return Verification(
        surprise=float((-logs[places, list(tokens)] - entropies).sum()),
        surprise_variance=float((rows * logs**2).sum() - (entropies**2).sum()),
        top1=float((rows.argmax(-1) == np.array(tokens)).sum() - best.sum()),
        top1_variance=float((best * (1 - best)).sum()),
    )
