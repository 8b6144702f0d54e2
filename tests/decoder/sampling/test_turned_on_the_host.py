"""A tree may extend from sampled into greedy positions; draft log-probabilities are then recorded for all nodes."""

import pytest

from decoder.methods.dynatree import DynaTree
from decoder.methods.linear import Linear
from decoder.sampling.settings import Sampling, Schedule
from decoder.tree_rules import Rules
from tests.decoder.makers import TinyModels, host_session


@pytest.mark.parametrize("rules", [Linear(), DynaTree(), DynaTree(selection="best", n_max=9)], ids=str)
def test_nodes_at_greedy_positions_have_the_draft_s_own_probabilities_too(
    tiny_models: TinyModels, rules: Rules
) -> None:
    schedule = Schedule(Sampling(0.6))
    schedule.turn(12, Sampling())
    engine = tiny_models.loaded(tiny_models.pair("neox"), "float64").sampled(1, schedule)
    session = host_session(engine, [1, 2, 3], 30, rules)
    session.prefill()
    across = 0
    while True:
        first, outcome = len(session.text), session.step(())
        tree, own = outcome.tree, outcome.tree.draft_logprobs
        if own and first + max(tree.depths) > 12:
            across += 1
            assert len(own) == len(tree)
            greedy = [node for node, depth in enumerate(tree.depths) if first + depth > 12]
            assert [own[node] for node in greedy] == [tree.logprobs[node] for node in greedy]
        if outcome.finished:
            break
    assert across > 0
