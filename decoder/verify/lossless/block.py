"""block: verification of one path as a whole. On average, it accepts at least as many tokens as verification token by
token.

From Sun et al. 2024, "Block verification accelerates speculative decoding". Nodes are accepted with the probability h
of that paper. (If nodes were accepted with the weights w of the paper's section 3.1, the text would be biased.) With h,
the probability that at least i tokens of the path are accepted is w_i. No lossless rule for one path has a higher
probability.
"""

from itertools import pairwise

from decoder.verify.lossless.bottom_up import Stop
from decoder.verify.lossless.drawn_tree import DrawnTree
from decoder.verify.lossless.rows import Rows, positive, ratio, share


def stops(tree: DrawnTree, target_probs: Rows, draft_probs: Rows) -> list[Stop]:
    """Stops in the order of trial, the deepest node first. Raises ValueError if the tree is not a chain."""
    chain, weight = tree.chain(), 1.0
    stops = [Stop(chain[0], 1.0, 1.0 if len(chain) > 1 else 0.0)]
    for above, node in pairwise(chain):
        token = tree.tokens[node]
        weight = ratio(weight * target_probs[above, token], draft_probs[above, token])
        stops.append(Stop(node, weight, 0.0))
        if node != chain[-1] and weight > 0:
            left = float(positive(weight * target_probs[node] - draft_probs[node]).sum())
            stops[-1] = Stop(node, share(left, 1 - weight), 1 / weight)
    return stops[::-1]
