"""Chains of `linear` end before the first token that is less probable than `p_min`."""

import math
from typing import Any

import pytest

from decoder import Linear, RunConfig
from decoder.methods import METHODS
from decoder.session.cuda_graph.static_shapes import passes, shape
from decoder.tree_rules import Budget, TreeRule, fixed_growth
from tests.decoder.makers import PROMPT, TinyModels


@pytest.mark.parametrize(
    ("sampling", "least"), [({}, 0.4), ({"temperature": 0.7}, 0.5), ({"temperature": 0.7, "verifier": "nss"}, 0.4)]
)
def test_no_drafted_token_is_less_probable_and_a_shorter_chain_would_go_on_with_one_that_is(
    tiny_models: TinyModels, sampling: dict[str, Any], least: float
) -> None:
    """The chains without a threshold, where texts agree, tell what was left out."""
    pair, plain = tiny_models.pair("neox"), RunConfig(("linear",), 40, **sampling)
    whole, cut = (
        tiny_models.play(pair, "float64", PROMPT, plain.with_rules("linear", Linear(6, p_min)))
        for p_min in (0.0, least)
    )
    assert whole.tokens("linear") == cut.tokens("linear")
    chains = {event.position: event for event in whole.rounds("linear")}
    rounds = [event for event in cut.rounds("linear") if event.limited_by != "length"]
    assert {event.limited_by for event in rounds} == {"k", "p_min"}
    compared = 0
    for event in rounds:
        assert all(math.exp(logprob) >= least for logprob in event.logprobs[1:])
        assert (event.limited_by == "k") == (len(event.tokens) == 7)
        if (other := chains.get(event.position)) and event.limited_by == "p_min":
            compared += 1
            length = len(event.tokens)
            assert other.tokens[:length] == event.tokens
            assert math.exp(other.logprobs[length]) < least
    assert compared


def test_without_a_threshold_the_rule_is_that_of_a_chain_and_nothing_else() -> None:
    assert Linear(5).rule() == TreeRule(fixed_growth(5, 0, 1), Budget(5))


def test_graphs_count_the_nodes_of_a_chain_that_may_end_early() -> None:
    assert not shape(Linear(12, 0.5).rule()).even
    assert shape(Linear(12).rule()).even
    assert (passes([Linear(12).rule()]).target, passes([Linear(12, 0.5).rule()]).target) == ((1, 32), (1, 8, 32))


def test_a_run_of_before_that_lacks_the_threshold_had_none() -> None:
    own = METHODS["linear"].own
    assert isinstance(own, Linear)
    assert own.with_knobs({"k": 7}) == Linear(7, 0.0)
