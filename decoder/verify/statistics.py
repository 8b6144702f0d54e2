"""Statistics of a sampled round, for users who check a decoder while it runs. Decides nothing.

Both sums over committed tokens have mean 0 in any lossless decoder, whatever its text (a martingale), so far from 0
they show a wrong one; that they are near 0 proves nothing.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from torch import Tensor

from decoder.events import Verification

_LEAST = 1e-30
"""Taken for the probability of a token that cannot be, whose surprise would be infinite."""


def of_tokens(target_probs: Float[Tensor, "D V"], tokens: Sequence[int]) -> Verification:
    """Statistics of the committed tokens alone, each with the target's distribution at its position."""
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
