"""Grids: the settings of a space, the method of each setting, and refused values."""

from typing import cast

import pytest

from decoder.errors import ConfigError
from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from dynatui.lab.bench.sweep.spaces import SPACES, Setting, axes_with, axis_values, base_named, space_named


def test_the_fixed_grid_is_the_paper_s_of_450_settings() -> None:
    space = SPACES["fixed"]
    settings = space.grid(space.axes)
    assert len({setting.key for setting in settings}) == 450
    assert {setting.length for setting in settings} == {100, 200, 300, 500, 1000}


@pytest.mark.parametrize("name", SPACES)
def test_every_setting_of_every_space_can_be_decoded(name: str) -> None:
    space = SPACES[name]
    for preset in space.presets or (None,):
        base = base_named(space, preset)
        for setting in space.grid(space.axes):
            assert space.config(base, setting).max_new_tokens == setting.length


def test_a_setting_changes_its_axes_alone() -> None:
    space, base = SPACES["thresholds"], base_named(SPACES["thresholds"], None)
    config = space.config(base, Setting({"tau_h": 0.7, "tau_l": 0.2, "T": 9}))
    assert config.rules("dynatree") == DynaTree(tau_h=0.7, tau_l=0.2)
    assert space.plain_config(base, Setting({"tau_h": 0.7, "tau_l": 0.2, "T": 9})).rules("dynatree") == DynaTree()


@pytest.mark.parametrize(("low", "high", "middle"), [(1, 3, 2), (3, 5, 3), (1, 1, 1)])
def test_the_middle_breadth_stays_where_it_can(low: int, high: int, middle: int) -> None:
    space = SPACES["breadth"]
    config = space.config(base_named(space, None), Setting({"b_min": low, "b_max": high, "T": 9}))
    assert cast("DynaTree", config.rules("dynatree")).branching == (low, middle, high)


def test_a_fixed_tree_has_depth_breadth_and_threshold() -> None:
    space = SPACES["fixed"]
    config = space.config(base_named(space, None), Setting({"D": 8, "B": 3, "tau": 0.1, "T": 9}))
    assert config.rules("fixed") == Fixed(8, 3, 0.1)


def test_what_is_not_possible_is_left_out_of_a_grid() -> None:
    space = SPACES["thresholds"]
    settings = space.grid(axes_with(space, {"tau_h": (0.4, 0.8), "tau_l": (0.4, 0.6)}))
    assert [setting.key for setting in settings] == ["tau_h=0.8 tau_l=0.4 T=256", "tau_h=0.8 tau_l=0.6 T=256"]


@pytest.mark.parametrize(
    ("axes", "line"),
    [
        (
            {"tau_h": (0.3,), "tau_l": (0.5,)},
            "no setting of these axes is possible; choose values so that tau_l is below tau_h",
        ),
        (
            {"T": tuple(range(1, 1000))},
            "the grid has 24975 settings, which are too many; give axes with 10000 settings or fewer",
        ),
        ({"B": (2,)}, "the space thresholds has no axis 'B'; choose from tau_h, tau_l, T"),
    ],
)
def test_an_impossible_grid_is_refused(axes: dict[str, tuple[float, ...]], line: str) -> None:
    space = SPACES["thresholds"]
    with pytest.raises(ConfigError) as caught:
        space.grid(axes_with(space, axes))
    assert str(caught.value) == line


def test_an_axis_reads_its_kind_of_numbers_once_each() -> None:
    assert axis_values(SPACES["fixed"], "tau", ".1,0.10, 1") == (0.1, 1.0)
    assert axis_values(SPACES["fixed"], "D", "3, 4,3") == (3, 4)
    with pytest.raises(ConfigError, match=r"the axis D is '3\.5', which is invalid; give whole numbers with commas"):
        axis_values(SPACES["fixed"], "D", "3.5")
    with pytest.raises(ConfigError, match="the axis tau is '', which is invalid; give numbers"):
        axis_values(SPACES["fixed"], "tau", "")


def test_unknown_names_are_refused_with_the_known() -> None:
    with pytest.raises(ConfigError, match="there is no space 'wide'; choose from thresholds, breadth, depth, fixed"):
        space_named("wide")
    with pytest.raises(ConfigError, match="--preset is 'fast'; give one of tuned, paper, sampled"):
        base_named(SPACES["depth"], "fast")
    with pytest.raises(ConfigError, match="--preset has no effect on fixed; leave it out"):
        base_named(SPACES["fixed"], "paper")
