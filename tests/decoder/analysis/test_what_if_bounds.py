"""Number of rounds that what-if estimates replay, and bounds on the number of nodes."""

import math
from dataclasses import replace

import pytest

from decoder.analysis import what_if as whatif
from decoder.analysis.what_if import what_if
from decoder.events import Knobs, Round
from decoder.methods.dynatree import DynaTree
from tests.decoder.analysis.one_round import replayed
from tests.decoder.rounds import a_round

WIDE = DynaTree(d0=1.0, d_max=2, branching=(4, 4, 4), rho_stop=0.3, rho_deep=0.3, tau=0)
"""Rules that give a node more children than any recorded tree of this module has."""


def told(parents: list[int], probabilities: list[float], accepted: list[int]) -> Round:
    """A round with this tree. Each token is its node's number; the bonus token is one more than the last number."""
    return a_round(
        parents=parents,
        knobs=Knobs(WIDE.tau_h, WIDE.tau_l, WIDE.d0),
        logprobs=[0.0, *map(math.log, probabilities)],
        accepted=accepted,
        committed=[*accepted, len(parents)],
    )


def star(nodes: int, accepted: int = 0) -> Round:
    """A root with all other nodes as its children."""
    return told([-1, *[0] * (nodes - 1)], [1 / nodes] * (nodes - 1), [1] * accepted)


def chain(depth: int) -> Round:
    """A path with all nodes accepted."""
    return told([-1, *range(depth)], [0.99] * depth, [*range(1, depth + 1)])


# Rounds


def test_as_many_of_the_newest_rounds_are_looked_at_as_have_so_many_nodes_together() -> None:
    count = whatif._NODES // 1000
    found = what_if([*[star(1000)] * 9, *[star(1000, accepted=1)] * count], replace(WIDE, branching=(1, 1, 1)))
    assert found
    assert found.rounds == count
    assert found.breadth.here.tokens == 2


def test_the_newest_round_is_looked_at_however_large_its_tree_is() -> None:
    found = what_if([star(2), star(whatif._NODES + 1)], WIDE)
    assert found
    assert found.rounds == 1


def test_a_tree_that_is_deeper_than_any_of_ours_is_not_judged() -> None:
    assert replayed(chain(whatif._DEEPEST), WIDE)
    assert replayed(chain(whatif._DEEPEST + 1), WIDE) is None


# Nodes


@pytest.mark.parametrize(("n_max", "accepted"), [(16, 2), (15, None)])
def test_a_node_is_kept_for_sure_where_all_nodes_down_to_its_depth_have_room(n_max: int, accepted: int | None) -> None:
    """The root has four children; at most three of these have four, since a fourth cannot have probability .3."""
    verdict = replayed(told([-1, 0, 1], [0.7, 0.9], [1, 2]), replace(WIDE, n_max=n_max))
    assert verdict
    assert (verdict.accepted, verdict.accepted_at_least) == (accepted, 2 if accepted else 1)


@pytest.mark.parametrize(("n_max", "accepted"), [(8, 2), (7, None)])
def test_of_the_best_a_node_is_kept_for_sure_where_all_that_can_be_as_probable_have_room(
    n_max: int, accepted: int | None
) -> None:
    """The path has probability .28, an undrafted child of the root at most .3; both depths hold up to 2 / .28 nodes."""
    verdict = replayed(told([-1, 0, 1], [0.7, 0.4], [1, 2]), replace(WIDE, n_max=n_max, selection="best"))
    assert verdict
    assert (verdict.accepted, verdict.accepted_at_least) == (accepted, 2 if accepted else 1)
