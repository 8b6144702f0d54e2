"""With the preset `tuned` and history off, each knob has an effect on the embedded pair."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from decoder import RunConfig, load_pair
from decoder.analysis.what_if import GridCell, what_if
from decoder.events import LENGTH, Round
from decoder.methods.dynatree import PRESETS, DynaTree
from decoder.tree import depths
from dynatui.prompts import load
from tests.decoder.makers import play

TUNED = PRESETS["tuned"]
FEWER, MORE = {"tau_h": 0.3, "tau_l": 0.05}, {"tau_h": 0.99, "tau_l": 0.9}
Rounds = list[list[Round]]
"""The rounds of each prompt."""


@dataclass(frozen=True)
class Texts:
    """Prompts, and the number of new tokens for each."""

    prompts: tuple[str, ...]
    tokens: int


OURS = Texts(tuple(load.embedded()), 32)


def books() -> Texts:
    """The beginnings of four books that were not used to train the pair."""
    folder = Path(os.environ.get("DYNATUI_DATA", "no folder was named")) / "books_test"
    texts = sorted(folder.glob("*.txt"))
    if not texts:
        pytest.skip("DYNATUI_DATA names no folder with books_test/")
    return Texts(tuple(text.read_text(encoding="utf-8")[:1000] for text in texts[:4]), 16)


@pytest.fixture(params=["ours", pytest.param("books", marks=pytest.mark.shared)])
def texts(request: pytest.FixtureRequest) -> Texts:
    return books() if request.param == "books" else replace(OURS, tokens=16)


@pytest.fixture(scope="module")
def played() -> Callable[..., Rounds]:
    """A function that decodes each prompt under `tuned` with some knobs changed and returns the rounds; cached."""
    engine, known = load_pair(dtype="float32", device="cpu"), dict[tuple[Texts, DynaTree], Rounds]()

    def decoded(texts: Texts, **turned: Any) -> Rounds:
        rules = replace(TUNED, **turned)
        if (texts, rules) not in known:
            config = RunConfig(("dynatree",), texts.tokens, dynatree=rules)
            known[texts, rules] = [play(engine, config, prompt).rounds("dynatree") for prompt in texts.prompts]
        return known[texts, rules]

    return decoded


def depth(rounds: Rounds) -> float:
    return fmean(max(depths(event.parents)) for prompt in rounds for event in prompt)


def nodes(rounds: Rounds) -> float:
    return fmean(len(event.tokens) - 1 for prompt in rounds for event in prompt)


def test_a_greater_base_depth_deepens_trees(played: Callable[..., Rounds], texts: Texts) -> None:
    found = {d0: depth(played(texts, d0=float(d0))) for d0 in (1, 2, 3, 5)}
    assert found[1] < found[2] < found[3] < found[5]
    assert found[5] - found[1] >= 0.5


def test_greater_thresholds_widen_trees(played: Callable[..., Rounds], texts: Texts) -> None:
    assert nodes(played(texts, **MORE)) >= 1.2 * nodes(played(texts, **FEWER))


@pytest.mark.parametrize(("name", "low", "high"), [("tau_h", 0.31, 0.99), ("tau_l", 0.1, 0.49), ("d0", 1.0, 7.0)])
def test_each_knob_shrinks_and_grows_trees_by_itself(
    played: Callable[..., Rounds], name: str, low: float, high: float
) -> None:
    assert nodes(played(OURS, **{name: low})) < nodes(played(OURS)) < nodes(played(OURS, **{name: high}))


def test_every_round_says_what_limited_it(played: Callable[..., Rounds]) -> None:
    limits = [event.limited_by for prompt in played(OURS) for event in prompt]
    assert {"d0", "rho_stop"} <= set(limits) <= {"d0", "rho_stop", "n_max", "d_max", LENGTH}


def figures(cells: Iterable[GridCell]) -> set[tuple[float, float]]:
    return {(round(cell.tokens, 3), round(cell.drafted, 3)) for cell in cells}


def test_what_if_says_other_things_of_other_knobs(played: Callable[..., Rounds]) -> None:
    """For the current knobs, what-if counts are exact; two columns are equal if no text had a tree of that depth."""
    depths_told, thresholds = [], []
    for rounds in played(OURS):
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
