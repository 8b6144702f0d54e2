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
    least = [least_probability(growth, depth) for depth in range(14)]
    assert least == sorted(least), "a deeper node needs no smaller probability to grow"
    for chance in (0.0, 0.04, 0.05, 0.1, 0.3, 0.5, 0.9, 1.0):
        assert [chance >= each for each in least] == [grows(rules, depth, chance) for depth in range(14)]
        assert breadth(growth, chance) == children(rules, chance)


@pytest.mark.parametrize("rules", EVERY, ids=str)
def test_arrays_tensors_and_logarithms_say_what_plain_numbers_say(rules: Rules) -> None:
    """Of logarithms, nothing impossible grows."""
    device = DeviceRule(CPU)
    device.turn(rules.rule())
    growth, logs = rules.rule().growth, device.logarithmic()
    depths, chances = torch.arange(14, dtype=torch.float64), [0.01, 0.05, 0.1, 0.3, 0.4, 0.5, 0.9, 1.0]
    least = [least_probability(growth, depth) for depth in range(14)]
    each, with_zero = torch.tensor(chances, dtype=torch.float64), [0.0, *chances]
    wide = [breadth(growth, chance) for chance in with_zero]
    assert least_probability(growth, np.arange(14), np).tolist() == least
    assert breadth(growth, np.array(with_zero), np).tolist() == wide
    assert least_probability(device.growth, depths, XP).tolist() == least
    assert breadth(device.growth, torch.tensor(with_zero, dtype=torch.float64), XP).tolist() == wide
    least_log = least_probability(logs, depths, XP)
    assert (each.log()[:, None] >= least_log).tolist() == [[chance >= one for one in least] for chance in chances]
    assert [float(breadth(logs, chance.log()[None], XP)) for chance in each] == wide[1:]
    assert not (torch.tensor(-math.inf) >= least_log).any()


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
