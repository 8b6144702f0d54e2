"""With the preset `tuned` and history off, each knob has an effect on the embedded pair."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from statistics import fmean
from typing import Any

import pytest

from decoder import RunConfig, load_pair
from decoder.analysis.what_if import GridCell, what_if
from decoder.events import LENGTH, Round
from decoder.methods.dynatree import PRESETS
from decoder.tree import depths
from dynatui.prompts import embedded
from tests.decoder.makers import play

TUNED = PRESETS["tuned"]
PROMPTS, TOKENS = embedded(), 96
Rounds = list[list[Round]]
"""The rounds of each prompt."""


@pytest.fixture(scope="module")
def played() -> Callable[..., Rounds]:
    """A function that decodes each prompt under `tuned` with some knobs changed and returns the rounds; cached."""
    engine = load_pair(dtype="float32", device="cpu")

    @cache
    def decoded(**turned: Any) -> Rounds:
        config = RunConfig(("dynatree",), TOKENS, dynatree=replace(TUNED, **turned))
        return [play(engine, config, prompt).rounds("dynatree") for prompt in PROMPTS]

    return decoded


def depth(rounds: Rounds) -> float:
    return fmean(max(depths(event.parents)) for prompt in rounds for event in prompt)


def nodes(rounds: Rounds) -> float:
    return fmean(len(event.tokens) - 1 for prompt in rounds for event in prompt)


def test_a_greater_base_depth_deepens_trees(played: Callable[..., Rounds]) -> None:
    found = [*(depth(played(d0=float(d0))) for d0 in (1, 2, 3)), depth(played())]
    assert found == sorted(set(found))
    assert found[-1] - found[0] >= 0.5


@pytest.mark.parametrize(("name", "low", "high"), [("tau_h", 0.31, 0.99), ("tau_l", 0.05, 0.39), ("d0", 1.0, 7.0)])
def test_each_knob_shrinks_and_grows_trees_by_itself(
    played: Callable[..., Rounds], name: str, low: float, high: float
) -> None:
    assert nodes(played(**{name: low})) < nodes(played()) < nodes(played(**{name: high}))


def test_every_round_says_what_limited_it(played: Callable[..., Rounds]) -> None:
    limits = [event.limited_by for prompt in played() for event in prompt]
    assert {"d0", "rho_stop"} <= set(limits) <= {"d0", "rho_stop", "n_max", "d_max", LENGTH}


def figures(cells: Iterable[GridCell]) -> set[tuple[float, float]]:
    return {(round(cell.tokens, 3), round(cell.drafted, 3)) for cell in cells}


def test_what_if_says_other_things_of_other_knobs(played: Callable[..., Rounds]) -> None:
    """For the current knobs, what-if counts are exact; two columns are equal if no text had a tree of that depth."""
    depths_told, thresholds = [], []
    for rounds in played():
        found = what_if(rounds, TUNED)
        assert found is not None
        assert found.here.exact
        breadth, _ = found.grids
        row, column = breadth.present
        depths_told.append(len(figures(breadth.cells[row][: column + 1])) / (column + 1))
        thresholds.append(len(figures(cells[grid.present[1]] for grid in found.grids for cells in grid.cells)))
    assert fmean(depths_told) > 0.7
    assert min(thresholds) >= 2
    assert fmean(thresholds) >= 4
