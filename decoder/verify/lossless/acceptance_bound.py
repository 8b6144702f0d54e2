"""The bound alpha*(k): what no solver can exceed in the probability that its token is among k i.i.d. draws."""

import numpy as np

from decoder.verify.lossless.rows import Row


def acceptance_bound(target_probs: Row, draft_probs: Row, draws: int) -> float:
    """The least, over sets A of tokens, of p(A) + 1 - q(A)^k; sets in the order of p / q suffice. Shapes (V,)."""
    unlikely = np.divide(target_probs, draft_probs, out=np.full_like(target_probs, np.inf), where=draft_probs > 0)
    order = np.argsort(unlikely, kind="stable")
    asked, offered = np.cumsum(target_probs[order]), np.cumsum(draft_probs[order])
    return min(1.0, float((asked + 1 - offered**draws).min()))
