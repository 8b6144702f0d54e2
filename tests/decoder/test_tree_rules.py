"""The growth rule and history step equal the paper's, and give equal results on numbers, numpy arrays and tensors."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decoder.methods.adaptive import AdaptiveTree
from decoder.methods.auto import Auto
from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.session.cuda_graph.device_state import XP, DeviceRule
from decoder.tree_rules import Rules, adapted, breadth, least_probability

CPU = torch.device("cpu")
EVERY: Sequence[Rules] = (
    Linear(3),
    Fixed(),
    Fixed(depth=4, branching=3, tau=0, n_max=5),
    DynaTree(),
    DynaTree(d0=2.5, tau=0.3, rho_deep=0.9),
    DynaTree(d0=2.49, branching=(2, 2, 5)),
    DynaTree(d0=1.4999999999),
    DynaTree(d0=1.5),
    Auto(),
)


def grows(rules: Rules, depth: int, chance: float) -> bool:
    """Whether a node gets children, with each method's rule written out."""
    match rules:
        case Linear(k=k):
            return depth < k
        case Fixed(depth=deepest, tau=tau):
            return depth < deepest and chance >= tau
        case _:
            assert isinstance(rules, AdaptiveTree)
            deep_enough = depth >= math.floor(rules.d0 + 0.5)
            likely = chance >= rules.rho_stop and chance >= rules.tau
            return depth < rules.d_max and likely and (not deep_enough or chance >= rules.rho_deep)


def children(rules: Rules, confidence: float) -> int:
    """Number of children of a node, with each method's rule written out."""
    match rules:
        case Linear():
            return 1
        case Fixed(branching=branching):
            return branching
        case _:
            assert isinstance(rules, AdaptiveTree)
            low, mid, high = rules.branching
            return low if confidence >= rules.tau_h else high if confidence < rules.tau_l else mid


@pytest.mark.parametrize("rules", EVERY, ids=str)
def test_the_rule_of_every_method_is_what_the_method_says(rules: Rules) -> None:
    growth = rules.rule().growth
    for depth in range(14):
        for chance in (0.0, 0.04, 0.05, 0.1, 0.3, 0.5, 0.9, 1.0):
            assert (chance >= least_probability(growth, depth)) == grows(rules, depth, chance)
            assert breadth(growth, chance) == children(rules, chance)


@pytest.mark.parametrize("rules", EVERY, ids=str)
def test_arrays_and_tensors_say_what_plain_numbers_say(rules: Rules) -> None:
    device = DeviceRule(CPU)
    device.turn(rules.rule())
    growth = rules.rule().growth
    depths, chances = range(14), [0.0, 0.05, 0.3, 0.4, 0.5, 0.9, 1.0]
    least = [least_probability(growth, depth) for depth in depths]
    wide = [breadth(growth, chance) for chance in chances]
    assert least_probability(growth, np.array(depths), np).tolist() == least
    assert breadth(growth, np.array(chances), np).tolist() == wide
    assert least_probability(device.growth, torch.arange(14, dtype=torch.float64), XP).tolist() == least
    assert breadth(device.growth, torch.tensor(chances, dtype=torch.float64), XP).tolist() == wide


@pytest.mark.parametrize("rules", EVERY, ids=str)
def test_the_rule_says_the_same_of_logarithms_and_nothing_impossible_grows(rules: Rules) -> None:
    device = DeviceRule(CPU)
    device.turn(rules.rule())
    growth = rules.rule().growth
    logs, depths = device.logarithmic(), torch.arange(14, dtype=torch.float64)
    least = least_probability(logs, depths, XP)
    for chance in (0.01, 0.05, 0.1, 0.3, 0.4, 0.5, 0.9, 1.0):
        log = torch.tensor([chance], dtype=torch.float64).log()
        assert (log >= least).tolist() == [chance >= least_probability(growth, depth) for depth in range(14)]
        assert float(breadth(logs, log, XP)) == breadth(growth, chance)
    assert not (torch.tensor(-math.inf) >= least).any()


@pytest.mark.parametrize("rules", EVERY, ids=str)
def test_a_deeper_node_needs_no_smaller_probability_to_grow(rules: Rules) -> None:
    least = [least_probability(rules.rule().growth, depth) for depth in range(14)]
    assert least == sorted(least)


@given(st.floats(1, 7), st.floats(0, 1), st.sampled_from([0.1, 1.0, 50.0]))
def test_history_moves_d0_and_tau_h_by_the_excess_within_their_bounds(d0: float, share: float, eta: float) -> None:
    rules = DynaTree(d0=d0, eta_d=eta, eta_h=eta / 10)
    excess = share - rules.target_acceptance
    expected = (
        min(7.0, max(1.0, d0 + eta * excess)),
        min(1.0, max(rules.tau_l + 0.01, rules.tau_h - eta / 10 * excess)),
    )
    rule, device = rules.rule(), DeviceRule(CPU)
    device.turn(rule)
    moved = adapted(device.growth, device.history, torch.tensor(share, dtype=torch.float64), XP)
    assert adapted(rule.growth, rule.history, share) == expected
    assert tuple(map(float, moved)) == expected
