"""Upper bound alpha*(k) on the acceptance rate of lossless solvers. The acceptance rate is the probability that the
chosen token is among k i.i.d. sampled tokens.
"""

import numpy as np

from decoder.verify.lossless.rows import Row


def acceptance_bound(target_probs: Row, draft_probs: Row, draws: int) -> float:
    """Minimum of p(A) + 1 - q(A)^k over token sets A, which a set of the tokens with the smallest p / q attains."""
    unlikely = np.divide(target_probs, draft_probs, out=np.full_like(target_probs, np.inf), where=draft_probs > 0)
    order = np.argsort(unlikely, kind="stable")
    target_mass, draft_mass = np.cumsum(target_probs[order]), np.cumsum(draft_probs[order])
    return min(1.0, float((target_mass + 1 - draft_mass**draws).min()))
