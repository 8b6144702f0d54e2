"""block: one path is judged as a whole, which accepts at least as much as token by token.

Sun et al. 2024, "Block verification accelerates speculative decoding". The coins are thrown with h, not with the
weights w that the paper's section 3.1 speaks of, which would be biased; P(at least i accepted | path) is then w_i, the
most that any lossless rule of one path can reach.
"""

from itertools import pairwise

from decoder.verify.lossless.bottom_up import Stop
from decoder.verify.lossless.drawn_tree import DrawnTree
from decoder.verify.lossless.rows import Rows, positive, ratio, share


def stops(tree: DrawnTree, target_probs: Rows, draft_probs: Rows) -> list[Stop]:
    """The nodes of a chain, the deepest first; shapes (N, V).

    Raises:
        ValueError: The tree is no chain.
    """
    chain, weight = tree.chain(), 1.0
    found = [Stop(chain[0], 1.0, 1.0 if len(chain) > 1 else 0.0)]
    for above, node in pairwise(chain):
        token = tree.tokens[node]
        weight = ratio(weight * target_probs[above, token], draft_probs[above, token])
        found.append(Stop(node, weight, 0.0))
        if node != chain[-1] and weight > 0:
            left = float(positive(weight * target_probs[node] - draft_probs[node]).sum())
            found[-1] = Stop(node, share(left, 1 - weight), 1 / weight)
    return found[::-1]
