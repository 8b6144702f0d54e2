"""Every suggestion of a sampler is a valid setting, and the shipped setting is suggested first."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.trial import FixedTrial

from decoder.methods.dynatree import PRESETS, DynaTree, shipped_preset
from decoder.methods.linear import Linear
from decoder.run.config import RunConfig
from decoder.tree_rules import Rules
from dynatui.lab.tuning.study import CHAIN, LONGEST_CHAIN, trees

TREE = trees(0)


class Drawn:
    """A trial that suggests random values within the bounds."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def suggest_int(self, _name: str, low: int, high: int, **_: Any) -> int:
        return self.random.choice([low, high, self.random.randint(low, high)])

    def suggest_float(self, _name: str, low: float, high: float, **_: Any) -> float:
        return self.random.choice([low, high, self.random.uniform(low, high)])

    def suggest_categorical(self, _name: str, choices: Sequence[Any]) -> Any:
        return self.random.choice(choices)


@given(st.integers(0, 2**32))
def test_every_suggestion_is_a_possible_setting(seed: int) -> None:
    drawn: Any = Drawn(seed)
    assert isinstance(TREE.rules(drawn), DynaTree)
    assert isinstance(CHAIN.rules(drawn), Linear)


def test_every_start_is_within_the_bounds_and_the_shipped_setting_is_the_first() -> None:
    assert first_trees(0)[0] == TREE.shipped
    chains = [CHAIN.rules(FixedTrial(dict(start))) for start in CHAIN.starts]
    assert chains[0] == CHAIN.shipped == Linear()


@pytest.mark.parametrize("temperature", [0, 0.6])
def test_a_search_starts_from_the_default_of_a_run_at_its_temperature(temperature: float) -> None:
    usual = RunConfig(temperature=temperature).of(DynaTree)
    assert first_trees(temperature)[0] == trees(temperature).shipped == usual == PRESETS[shipped_preset(temperature)]
    assert {PRESETS["tuned"], PRESETS["sampled"]} <= {*first_trees(temperature)}


def first_trees(temperature: float) -> list[Rules]:
    return [trees(temperature).rules(FixedTrial(dict(start))) for start in trees(temperature).starts]


def test_all_chains_are_among_the_starts() -> None:
    assert {start["k"] for start in CHAIN.starts} == set(range(1, LONGEST_CHAIN + 1))
    assert CHAIN.count == LONGEST_CHAIN
