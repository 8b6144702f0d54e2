"""Parameters keep their bounds and say what to give instead; knobs are moved to the nearest allowed value."""

from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from decoder.config import KNOB_GAP, PRESETS, DynaTree, Fixed, KnobName, Linear, RunConfig
from decoder.errors import ConfigError, DecoderError

OUTSIDE: dict[str, dict[str, Any]] = {
    "d0 under 1": {"d0": 0.9},
    "d0 above d_max - 1": {"d0": 7.1},
    "d0 no number": {"d0": float("nan")},
    "d_max under 2": {"d_max": 1, "d0": 1},
    "tau_l 0": {"tau_l": 0.0},
    "tau_l above tau_h": {"tau_l": 0.95},
    "tau_l equal to tau_h": {"tau_l": 0.9},
    "tau_h above 1": {"tau_h": 1.1},
    "tau_h no number": {"tau_h": float("nan")},
    "rho_stop under 0": {"rho_stop": -0.1},
    "rho_stop above rho_deep": {"rho_stop": 0.6},
    "rho_deep above 1": {"rho_deep": 1.1},
    "no children": {"branching": (0, 2, 3)},
    "falling branching": {"branching": (3, 2, 1)},
    "tau under 0": {"tau": -0.1},
    "tau above 1": {"tau": 1.1},
    "no nodes": {"n_max": 0},
    "an unknown selection": {"selection": "worst"},
    "an empty window": {"window": 0},
}
INSIDE: dict[str, dict[str, Any]] = {
    "d0 1": {"d0": 1},
    "d0 at d_max - 1": {"d0": 7},
    "d_max 2": {"d_max": 2, "d0": 1},
    "tau_h 1": {"tau_h": 1},
    "rho_stop 0": {"rho_stop": 0, "rho_deep": 0},
    "rho_deep 1": {"rho_deep": 1},
    "breadth off": {"branching": (1, 1, 1)},
    "one node": {"n_max": 1},
    "tau 0": {"tau": 0},
    "tau 1": {"tau": 1},
    "best": {"selection": "best"},
}


@pytest.mark.parametrize("changes", OUTSIDE.values(), ids=OUTSIDE)
def test_a_parameter_outside_its_bounds_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="give"):
        DynaTree(**changes)


@pytest.mark.parametrize("changes", INSIDE.values(), ids=INSIDE)
def test_a_parameter_at_its_bound_is_taken(changes: dict[str, Any]) -> None:
    tree = DynaTree(**changes)
    assert {name: getattr(tree, name) for name in changes} == changes


def test_a_refused_parameter_is_bad_usage() -> None:
    assert issubclass(ConfigError, DecoderError)
    assert ConfigError.exit_code == 2


def test_the_defaults_are_the_paper_s() -> None:
    assert PRESETS["paper"] == DynaTree()
    values = {field.name: field.default for field in fields(DynaTree)}
    assert values == {
        "d0": 5,
        "d_max": 8,
        "branching": (1, 2, 3),
        "tau_h": 0.9,
        "tau_l": 0.4,
        "rho_stop": 0.1,
        "rho_deep": 0.5,
        "tau": 0.05,
        "n_max": 256,
        "selection": "bfs",
        "history": True,
        "window": 10,
        "target_acceptance": 0.7,
        "eta_d": 1,
        "eta_h": 0.1,
    }
    assert Fixed() == Fixed(5, 2, 0.05, 256)
    assert Linear().k == 5


def test_parameters_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        DynaTree().d0 = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("tau_h", 0.8, 0.8),
        ("tau_h", 7, 1.0),
        ("tau_h", 0, 0.4 + KNOB_GAP),
        ("tau_l", 0.5, 0.5),
        ("tau_l", 0.95, 0.9 - KNOB_GAP),
        ("tau_l", -1, KNOB_GAP),
        ("d0", 3.25, 3.25),
        ("d0", 99, 7),
        ("d0", 0, 1),
        ("history", 0, 0),
        ("history", 1, 1),
    ],
)
def test_a_turned_knob_stays_within_its_bounds(name: KnobName, value: float, kept: float) -> None:
    assert DynaTree().turned(name, value).knob(name) == pytest.approx(kept)


def test_a_turned_knob_leaves_the_others_alone() -> None:
    turned = DynaTree().turned("tau_h", 0.8)
    assert turned.turned("tau_h", 0.9) == DynaTree()


def test_tau_l_can_be_turned_at_the_narrowest_gap() -> None:
    narrow = DynaTree(tau_l=0.01, tau_h=0.02)
    assert narrow.turned("tau_l", 0).tau_l == KNOB_GAP


@pytest.mark.parametrize("changes", [{"depth": 0}, {"branching": 0}, {"tau": -0.1}, {"tau": 1.1}, {"n_max": 0}])
def test_a_fixed_tree_outside_its_bounds_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="give"):
        Fixed(**changes)


def test_a_chain_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="K is 0; give 1 or more"):
        Linear(0)


def test_a_run_without_a_method_is_refused() -> None:
    with pytest.raises(ConfigError, match="no method was named"):
        RunConfig(())


def test_a_method_named_twice_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="ar named twice"):
        RunConfig(("ar", "dynatree", "ar"))


def test_a_run_of_no_tokens_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_new_tokens is 0; give 1 or more"):
        RunConfig(max_new_tokens=0)
