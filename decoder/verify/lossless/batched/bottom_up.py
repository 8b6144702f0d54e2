"""Batched block and traversal verification: scalars for all nodes are computed on a device, then random decisions are
made on the host.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from decoder.verify.lossless import bottom_up
from decoder.verify.lossless.batched.plans import (
    as_probability,
    draw,
    draw_counts,
    drawn_tokens,
    ratio,
    residual,
    share,
    to_host,
    totals,
)
from decoder.verify.lossless.bottom_up import Stop
from decoder.verify.lossless.drawn_tree import DrawnTree
from decoder.verify.lossless.random_generator import RandomGenerator
from decoder.verify.lossless.top_down import Accepted
from decoder.verify.lossless.traversal import NodeSplit, post_order


def verify(
    stops: Callable[[DrawnTree, Float[Tensor, "N V"], Float[Tensor, "N V"]], Sequence[Stop]],
    tree: DrawnTree,
    target_probs: Float[Tensor, "N V"],
    draft_probs: Float[Tensor, "N V"],
    generator: RandomGenerator,
) -> Accepted:
    """Verifies a tree; computes the residual only at the accepted stop. Raises ModelError if a probability is NaN."""
    stop = bottom_up.first(stops(tree, target_probs, draft_probs), generator)
    removed = target_probs.new_tensor([stop.removed])
    after = residual(target_probs[[stop.node]], draft_probs[[stop.node]], removed)
    return tree.path(stop.node), int(draw(after, generator))


def block_stops(tree: DrawnTree, target_probs: Float[Tensor, "N V"], draft_probs: Float[Tensor, "N V"]) -> list[Stop]:
    """The stops of `block.stops`, from cumulative sums of log p - log q and their running maximum. Raises ModelError if
    a probability is NaN, ValueError if the tree is not a chain.
    """
    last = len(tree.chain()) - 1
    tokens = torch.tensor(tree.tokens[1:], dtype=torch.long, device=target_probs.device)[:, None]
    over, under = target_probs[:-1].gather(1, tokens).double(), draft_probs[:-1].gather(1, tokens).double()
    so_far = torch.cat([over.new_zeros(1), (over.log() - under.clamp_min(1e-300).log())[:, 0]]).cumsum(0)
    weights = as_probability((so_far - so_far.cummax(0).values).exp())
    left = (weights[:, None].to(target_probs.dtype) * target_probs - draft_probs).clamp_min(0).sum(-1)
    _, probabilities, weight = to_host(totals(target_probs, draft_probs), share(left, 1 - weights), weights)
    inner = [Stop(node, probabilities[node], 1 / weight[node] if weight[node] > 0 else 0.0) for node in range(1, last)]
    if not last:
        return [Stop(0, 1.0, 0.0)]
    return [Stop(last, weight[last], 0.0), *reversed(inner), Stop(0, 1.0, 1.0)]


def traversal_stops(
    tree: DrawnTree, target_probs: Float[Tensor, "N V"], draft_probs: Float[Tensor, "N V"]
) -> list[Stop]:
    """The stops of `traversal.stops`, computed level by level: each row is read once per sampled token. Raises
    ModelError if a probability is NaN.
    """
    drawn, counts = drawn_tokens(tree, target_probs.device), draw_counts(tree, target_probs.device)
    slots = target_probs.new_zeros(drawn.shape)
    handed, removed = target_probs.new_ones(len(tree)), target_probs.new_zeros(len(tree))
    for level in _levels_with_draws(tree):
        rows = target_probs[level], draft_probs[level]
        slots[level], handed[level], removed[level] = _refused(*rows, drawn[level], counts[level], handed[level])
        owned = [(child, node, place) for node in level for place, child, owns in tree.slots(node) if owns]
        children, parents, places = (list(column) for column in zip(*owned, strict=True))
        handed[children] = slots[parents, places]
    _, slot_probabilities, probabilities, all_removed = to_host(
        totals(target_probs, draft_probs), slots, handed, removed
    )
    return list(
        post_order(tree, lambda node, _: NodeSplit(slot_probabilities[node], probabilities[node], all_removed[node]))
    )


def _levels_with_draws(tree: DrawnTree) -> list[list[int]]:
    levels: list[list[int]] = [[] for _ in range(max(tree.depths) + 1)]
    for node, drawn in enumerate(tree.children):
        if drawn:
            levels[tree.depths[node]].append(node)
    return [level for level in levels if level]


def _refused(
    target_probs: Float[Tensor, "n V"],
    draft_probs: Float[Tensor, "n V"],
    drawn: Int[Tensor, "n K"],
    counts: Int[Tensor, "n"],
    probability: Float[Tensor, "n"],
) -> tuple[Float[Tensor, "n K"], Float[Tensor, "n"], Float[Tensor, "n"]]:
    """For each node: probabilities passed to sampled children, probability of a stop, and `removed` (see `Stop`)."""
    over, under = target_probs.gather(1, drawn), draft_probs.gather(1, drawn)
    removed, total = torch.zeros_like(probability), torch.ones_like(probability)
    slots = torch.zeros_like(over)
    for place in range(drawn.shape[1]):
        alive = (counts > place) & (probability > 0) & (total > 0)
        left = (over[:, place] - removed * under[:, place]).clamp_min(0)
        slots[:, place] = torch.where(alive, ratio(probability * left / total, under[:, place]), 0.0)
        removed = torch.where(alive, removed + total / probability, removed)
        mass_left = torch.addcmul(target_probs, removed[:, None], draft_probs, value=-1).clamp_min_(0).sum(-1)
        probability = torch.where(alive, share(probability * mass_left / total, 1 - probability), probability)
        total = torch.where(alive, mass_left, total)
    return slots, probability, removed
