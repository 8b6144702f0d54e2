"""Top-down verification of a tree on tensors: plans all nodes at once on a device, then walks the tree on the host."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

from decoder.verify.lossless.batched.plans import PlannedSolver, draw, to_host, totals
from decoder.verify.lossless.drawn_tree import DrawnTree
from decoder.verify.lossless.random_generator import RandomGenerator
from decoder.verify.lossless.top_down import Accepted, Solve, descend


def verify(
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
