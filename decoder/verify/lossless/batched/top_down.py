"""The walk from the root by numbers that were computed for all nodes at once."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

from decoder.verify.lossless.batched.device_rows import VerifyOnDevice, draw, to_host, totals
from decoder.verify.lossless.batched.plans import PlannedSolver
from decoder.verify.lossless.coins import Coins
from decoder.verify.lossless.drawn_tree import DrawnTree
from decoder.verify.lossless.top_down import Accepted, Solve, descend


def verify(
    solver: PlannedSolver,
    tree: DrawnTree,
    target_probs: Float[Tensor, "N V"],
    draft_probs: Float[Tensor, "N V"],
    coins: Coins,
) -> Accepted:
    """Verifies a tree.

    Raises:
        ModelError: A probability is NaN.
    """
    plan = solver.plan(tree, target_probs, draft_probs)
    if target_probs.device.type == "cpu":  # where a draw costs more than a copy, only nodes that are visited have one
        _, chances = to_host(totals(target_probs, draft_probs), plan.chances)
        return _walk(solver, tree, chances, lambda node: int(draw(plan.residual[[node]], coins)), coins)
    _, chances, tokens = to_host(totals(target_probs, draft_probs), plan.chances, draw(plan.residual, coins))
    return _walk(solver, tree, chances, lambda node: int(tokens[node]), coins)


def _walk(
    solver: PlannedSolver,
    tree: DrawnTree,
    chances: list[list[list[float]]],
    from_residual: Callable[[int], int],
    coins: Coins,
) -> Accepted:
    def choose(node: int) -> int:
        drawn = tree.drawn(node)
        place = solver.select(chances[node], len(drawn), coins)
        return from_residual(node) if place is None else drawn[place]

    return descend(tree, choose)


def verify_visited(
    solve: Solve,
    tree: DrawnTree,
    target_probs: Float[Tensor, "N V"],
    draft_probs: Float[Tensor, "N V"],
    coins: Coins,
) -> Accepted:
    """Verifies a tree with a solver that works on the host, in float64, on the rows of visited nodes alone.

    Raises:
        ModelError: A probability is NaN.
    """
    to_host(totals(target_probs, draft_probs))

    def choose(node: int) -> int:
        drawn = tree.drawn(node)
        if not drawn:
            return int(draw(target_probs[[node]], coins))
        rows = (target_probs[node].double().cpu().numpy(), draft_probs[node].double().cpu().numpy())
        return solve(*rows, drawn, coins)

    return descend(tree, choose)


def on_first_path(whole: VerifyOnDevice) -> VerifyOnDevice:
    """The same verifier on the first draw of each node alone."""

    def verify(
        tree: DrawnTree, target_probs: Float[Tensor, "N V"], draft_probs: Float[Tensor, "N V"], coins: Coins
    ) -> Accepted:
        return whole(tree.first_path(), target_probs, draft_probs, coins)

    return verify
