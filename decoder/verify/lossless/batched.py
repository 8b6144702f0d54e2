"""Verification for large vocabularies: deterministic arithmetic on rows is batched over all nodes, on a device.

A few numbers for each node are then copied to the host in one copy; khisti copies the rows of visited nodes. With these
numbers and random numbers, the host walks the tree: from the root down with a plan for each node, or along the stops of
block and traversal verification.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from decoder.verify.lossless import bottom_up
from decoder.verify.lossless.bottom_up import NodeSplit, Stop, post_order
from decoder.verify.lossless.drawn_tree import DrawnTree
from decoder.verify.lossless.random_generator import RandomGenerator
from decoder.verify.lossless.rows import NEGLIGIBLE, require_numbers
from decoder.verify.lossless.top_down import Accepted, Solve, descend

VerifyOnDevice: TypeAlias = Callable[[DrawnTree, Tensor, Tensor, RandomGenerator], Accepted]
"""(tree, target rows, draft rows, generator) -> accepted nodes and next token. Rows are probabilities, shape (N, V), on
one device; the draft's rows at leaves are zeros.
"""
_SMALLEST = 1e-300
"""Least waiting time in `race`: with a waiting time of 0, a token would win even if its probability is tiny."""


def normalised(weights: Float[Tensor, "N V"], fallback: Float[Tensor, "N V"]) -> Float[Tensor, "N V"]:
    """Each row divided by its sum; the row of `fallback` where the sum is 0."""
    totals = weights.sum(-1, keepdim=True)
    return torch.where(totals > 0, weights / totals, fallback)


def residual(
    target_probs: Float[Tensor, "N V"], draft_probs: Float[Tensor, "N V"], removed: Float[Tensor, "N"]
) -> Float[Tensor, "N V"]:
    """Normalised (p - removed q)+; p where (p - removed q)+ is 0 everywhere."""
    left = torch.addcmul(target_probs, removed[:, None], draft_probs, value=-1).clamp_min_(0)
    return normalised(left, target_probs)


def ratio(over: Tensor, under: Tensor) -> Tensor:
    """Elementwise; see `rows.ratio`."""
    return as_probability(torch.where(under > 0, over / under, (over > 0).to(over.dtype)))


def share(part: Tensor, rest: Tensor) -> Tensor:
    """Elementwise; see `rows.share`."""
    whole = part + rest
    return as_probability(torch.where(whole > 0, part / whole, 1.0))


def as_probability(values: Tensor) -> Tensor:
    """Values clamped to [0, 1]; values below `NEGLIGIBLE` become 0."""
    return torch.where(values < NEGLIGIBLE, 0.0, values.clamp_max(1))


def drawn_tokens(tree: DrawnTree, device: torch.device) -> Int[Tensor, "N K"]:
    """Tokens sampled after each node, in order; shorter rows are padded with token 0."""
    widest = max(map(len, tree.children))
    rows = [tree.drawn(node) + [0] * (widest - len(tree.children[node])) for node in range(len(tree))]
    return torch.tensor(rows, dtype=torch.long).reshape(len(tree), widest).to(device)


def draw_counts(tree: DrawnTree, device: torch.device) -> Int[Tensor, "N"]:
    return torch.tensor([len(drawn) for drawn in tree.children]).to(device)


def to_host(*tensors: Tensor) -> list[Any]:
    """Copies small tensors in a single copy; returns nested lists. Raises ModelError if a number is NaN."""
    packed = torch.cat([tensor.double().flatten() for tensor in tensors]).cpu()
    require_numbers(float(packed.sum()))
    parts = packed.split([tensor.numel() for tensor in tensors])
    return [part.reshape(tensor.shape).tolist() for part, tensor in zip(parts, tensors, strict=True)]


def totals(target_probs: Float[Tensor, "N V"], draft_probs: Float[Tensor, "N V"]) -> Float[Tensor, "2"]:
    """Sums of the target's and of the draft's probabilities; a sum is NaN if any of its numbers is NaN."""
    return torch.stack([target_probs.sum(), draft_probs.sum()])


def draw(rows: Float[Tensor, "R V"], generator: RandomGenerator) -> Int[Tensor, "R"]:
    """Samples a token for each row. On a GPU, the device's generator samples, with a seed from `generator`."""
    if rows.device.type == "cpu":
        return torch.tensor([generator.choice(row) for row in rows.double().numpy()], dtype=torch.long)
    noise = torch.Generator(rows.device).manual_seed(generator.integers(1 << 63))
    return race(rows, torch.empty_like(rows, dtype=torch.float64).exponential_(generator=noise))


def race(rows: Float[Tensor, "R V"], waits: Float[Tensor, "R V"]) -> Int[Tensor, "R"]:
    """First arrival of an exponential race in each row: a token arrives at its waiting time (`waits`, exponential with
    mean 1) divided by its probability, so a token of probability 0 never arrives, even with rounding.
    """
    return (rows / waits.clamp_min(_SMALLEST)).argmax(-1)


STEPS = 30
"""Bisection steps on [1, k] for the division factor: enough for float32."""


@dataclass(frozen=True)
class NodePlans:
    """Acceptance probabilities and residuals at every node of a tree."""

    probabilities: Float[Tensor, "N R K"]
    """Acceptance probability of each sampled token (axis K) by number of refusals (axis R; size 1 if irrelevant)."""
    residual: Float[Tensor, "N V"]
    """Distribution of the token after a node if no sampled token is accepted."""


@dataclass(frozen=True)
class PlannedSolver:
    """A verifier that plans all nodes at once, and makes random decisions node by node."""

    plan: Callable[[DrawnTree, Float[Tensor, "N V"], Float[Tensor, "N V"]], NodePlans]
    select: Callable[[Sequence[Sequence[float]], int, RandomGenerator], int | None]
    """(acceptance probabilities, sampled tokens, generator) -> index of the accepted token, None if all are refused."""


def in_draw_order(probabilities: Sequence[Sequence[float]], draws: int, generator: RandomGenerator) -> int | None:
    return next(
        (place for place, probability in enumerate(probabilities[0][:draws]) if generator.bernoulli(probability)), None
    )


def in_random_order(probabilities: Sequence[Sequence[float]], draws: int, generator: RandomGenerator) -> int | None:
    pool = list(range(draws))
    for after_refusals in probabilities[:draws]:
        place = pool.pop(generator.integers(len(pool)))
        if generator.bernoulli(after_refusals[place]):
            return place
    return None


def plan_nss(tree: DrawnTree, target_probs: Float[Tensor, "N V"], draft_probs: Float[Tensor, "N V"]) -> NodePlans:
    return NodePlans(draft_probs.new_zeros(len(tree), 1, 0), target_probs)


def plan_naive(tree: DrawnTree, target_probs: Float[Tensor, "N V"], draft_probs: Float[Tensor, "N V"]) -> NodePlans:
    first = drawn_tokens(tree, target_probs.device)[:, :1]
    probabilities = ratio(target_probs.gather(1, first), draft_probs.gather(1, first))
    return NodePlans(probabilities[:, None], residual(target_probs, draft_probs, target_probs.new_ones(len(tree))))


def plan_spectr(tree: DrawnTree, target_probs: Float[Tensor, "N V"], draft_probs: Float[Tensor, "N V"]) -> NodePlans:
    drawn, counts = drawn_tokens(tree, target_probs.device), draw_counts(tree, target_probs.device)
    factor = target_probs.new_ones(len(tree), 1)
    several = [node for node, children in enumerate(tree.children) if len(children) > 1]
    if several:
        factor[several] = division_factor(target_probs[several], draft_probs[several], counts[several, None])
    overlap = torch.minimum(target_probs / factor, draft_probs)
    single = overlap.sum(-1, keepdim=True)
    gamma = torch.where(single > 0, _any_of(single, counts[:, None]) / single, counts[:, None])
    residual_rows = normalised((target_probs - gamma * overlap).clamp_min(0), target_probs)
    return NodePlans(
        ratio(target_probs.gather(1, drawn), factor * draft_probs.gather(1, drawn))[:, None], residual_rows
    )


def division_factor(
    target_probs: Float[Tensor, "N V"], draft_probs: Float[Tensor, "N V"], draws: Int[Tensor, "N 1"]
) -> Float[Tensor, "N 1"]:
    """Rho of each node; see `spectr`."""
    low, high = torch.ones_like(target_probs[:, :1]), draws.to(target_probs.dtype)
    for _ in range(STEPS):
        middle = (low + high) / 2
        single = torch.minimum(target_probs / middle, draft_probs).sum(-1, keepdim=True)
        above = _any_of(single, draws) <= middle * single
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    return high


def _any_of(single: Tensor, draws: Tensor) -> Tensor:
    """1 - (1 - single)^draws, accurate also for small probabilities."""
    return -torch.expm1(draws * torch.log1p(-single.clamp_max(1)))


def plan_specinfer(tree: DrawnTree, target_probs: Float[Tensor, "N V"], draft_probs: Float[Tensor, "N V"]) -> NodePlans:
    drawn, counts = drawn_tokens(tree, target_probs.device), draw_counts(tree, target_probs.device)
    over, under = target_probs.gather(1, drawn), draft_probs.gather(1, drawn)
    removed, total = target_probs.new_zeros(len(tree), 1), target_probs.new_ones(len(tree), 1)
    probabilities = []
    for refusals in range(drawn.shape[1]):
        # If the residual is 0 everywhere, the target's distribution replaces it.
        left = torch.where(total > 0, (over - removed * under).clamp_min(0) / total, over)
        probabilities.append(ratio(left, under))
        removed = torch.where(refusals < counts[:, None], removed + total, removed)
        total = (target_probs - removed * draft_probs).clamp_min(0).sum(-1, keepdim=True)
    shape = (len(tree), drawn.shape[1], drawn.shape[1])
    return NodePlans(
        torch.stack(probabilities, 1) if probabilities else over.reshape(shape),
        residual(target_probs, draft_probs, removed[:, 0]),
    )


NSS = PlannedSolver(plan_nss, in_draw_order)
NAIVE = PlannedSolver(plan_naive, in_draw_order)
SPECTR = PlannedSolver(plan_spectr, in_draw_order)
SPECINFER = PlannedSolver(plan_specinfer, in_random_order)


def verify_planned(
    solver: PlannedSolver,
    tree: DrawnTree,
    target_probs: Float[Tensor, "N V"],
    draft_probs: Float[Tensor, "N V"],
    generator: RandomGenerator,
) -> Accepted:
    """Verifies a tree by a planned solver. Raises ModelError if a probability is NaN."""
    plan = solver.plan(tree, target_probs, draft_probs)
    # On a CPU, sampling a token costs more than copying the probabilities, so tokens are sampled only at visited nodes.
    if target_probs.device.type == "cpu":
        _, probabilities = to_host(totals(target_probs, draft_probs), plan.probabilities)
        return _walk(solver, tree, probabilities, lambda node: int(draw(plan.residual[[node]], generator)), generator)
    _, probabilities, tokens = to_host(
        totals(target_probs, draft_probs), plan.probabilities, draw(plan.residual, generator)
    )
    return _walk(solver, tree, probabilities, lambda node: int(tokens[node]), generator)


def _walk(
    solver: PlannedSolver,
    tree: DrawnTree,
    probabilities: list[list[list[float]]],
    from_residual: Callable[[int], int],
    generator: RandomGenerator,
) -> Accepted:
    def choose(node: int) -> int:
        drawn = tree.drawn(node)
        place = solver.select(probabilities[node], len(drawn), generator)
        return from_residual(node) if place is None else drawn[place]

    return descend(tree, choose)


def verify_visited(
    solve: Solve,
    tree: DrawnTree,
    target_probs: Float[Tensor, "N V"],
    draft_probs: Float[Tensor, "N V"],
    generator: RandomGenerator,
) -> Accepted:
    """Verifies with a solver on the host, in float64; only the rows of visited nodes are copied to the host. Raises
    ModelError if a probability is NaN.
    """
    to_host(totals(target_probs, draft_probs))

    def choose(node: int) -> int:
        drawn = tree.drawn(node)
        if not drawn:
            return int(draw(target_probs[[node]], generator))
        rows = (target_probs[node].double().cpu().numpy(), draft_probs[node].double().cpu().numpy())
        return solve(*rows, drawn, generator)

    return descend(tree, choose)


def verify_stops(
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
    """The stops of `bottom_up.block_stops`, from cumulative sums of log p - log q and their running maximum. Raises
    ModelError if a probability is NaN, ValueError if the tree is not a chain.
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
    """The stops of `bottom_up.traversal_stops`, computed level by level: each row is read once per sampled token.
    Raises ModelError if a probability is NaN.
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
