"""With the preset `tuned` and history off, each knob has an effect on the embedded pair."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from decoder import RunConfig, decode, load_pair
from decoder.analysis.what_if import GridCell, what_if
from decoder.engine import Engine
from decoder.events import LENGTH, Round
from decoder.methods.dynatree import PRESETS, DynaTree
from decoder.tree import depths

TUNED = PRESETS["tuned"]
FEWER, MORE = {"tau_h": 0.3, "tau_l": 0.05}, {"tau_h": 0.99, "tau_l": 0.9}
PROMPTS = Path(__file__).parents[2] / "dynatui" / "prompts"


@dataclass(frozen=True)
class Texts:
    """Prompts, and the number of new tokens for each."""

    prompts: tuple[str, ...]
    tokens: int


OURS = Texts(tuple(path.read_text(encoding="utf-8").rstrip("\n") for path in sorted(PROMPTS.glob("*.txt"))), 32)
OURS_BRIEFLY = replace(OURS, tokens=16)


def books() -> Texts:
    """The beginnings of four books that were not used to train the pair."""
    folder = Path(os.environ.get("DYNATUI_DATA", "no folder was named")) / "books_test"
    texts = sorted(folder.glob("*.txt"))
    if not texts:
        pytest.skip("DYNATUI_DATA names no folder with books_test/")
    return Texts(tuple(text.read_text(encoding="utf-8")[:1000] for text in texts[:4]), 16)


both = pytest.mark.parametrize(
    "texts", [pytest.param(lambda: OURS_BRIEFLY, id="ours"), pytest.param(books, id="books", marks=pytest.mark.shared)]
)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return load_pair(dtype="float32", device="cpu")


@pytest.fixture(scope="module")
def played(engine: Engine) -> Callable[..., list[list[Round]]]:
    """A function that decodes each prompt under `tuned` with some knobs changed and returns the rounds; cached."""
    known: dict[tuple[Texts, DynaTree], list[list[Round]]] = {}

    def play(texts: Texts, **turned: Any) -> list[list[Round]]:
        rules = replace(TUNED, **turned)
        if (texts, rules) not in known:
            config = RunConfig(("dynatree",), texts.tokens, dynatree=rules)
            known[texts, rules] = [
                [event for event in decode(engine, prompt, config) if isinstance(event, Round)]
                for prompt in texts.prompts
            ]
        return known[texts, rules]

    return play


def depth(rounds: list[list[Round]]) -> float:
    return fmean(max(depths(event.parents)) for prompt in rounds for event in prompt)


def nodes(rounds: list[list[Round]]) -> float:
    return fmean(len(event.tokens) - 1 for prompt in rounds for event in prompt)


@both
def test_a_greater_base_depth_deepens_trees(
    played: Callable[..., list[list[Round]]], texts: Callable[[], Texts]
) -> None:
    found = {d0: depth(played(texts(), d0=float(d0))) for d0 in (1, 2, 3, 5)}
    assert found[1] < found[2] < found[3] < found[5]
    assert found[5] - found[1] >= 0.7


@both
def test_greater_thresholds_widen_trees(played: Callable[..., list[list[Round]]], texts: Callable[[], Texts]) -> None:
    assert nodes(played(texts(), **MORE)) >= 1.2 * nodes(played(texts(), **FEWER))


@pytest.mark.parametrize("turned", [{"tau_h": 0.21}, {"tau_l": 0.1}, {"d0": 1.0}])
def test_each_knob_shrinks_trees_by_itself(played: Callable[..., list[list[Round]]], turned: dict[str, float]) -> None:
    assert nodes(played(OURS, **turned)) < nodes(played(OURS))


@pytest.mark.parametrize("turned", [{"tau_h": 0.99}, {"tau_l": 0.29}, {"d0": 7.0}])
def test_each_knob_grows_trees_by_itself(played: Callable[..., list[list[Round]]], turned: dict[str, float]) -> None:
    assert nodes(played(OURS, **turned)) > nodes(played(OURS))


def test_every_round_says_what_limited_it(played: Callable[..., list[list[Round]]]) -> None:
    limits = [event.limited_by for prompt in played(OURS) for event in prompt]
    assert {"d0", "rho_stop"} <= set(limits) <= {"d0", "rho_stop", "n_max", "d_max", LENGTH}


def figures(cells: Iterable[GridCell]) -> set[tuple[float, float]]:
    return {(round(cell.tokens, 3), round(cell.drafted, 3)) for cell in cells}


def test_what_if_says_other_things_of_other_knobs(played: Callable[..., list[list[Round]]]) -> None:
    """For the current knobs, what-if counts are exact; two columns are equal if no text had a tree of that depth."""
    depths_told, thresholds = [], []
    for rounds in played(OURS):
        found = what_if(rounds, TUNED)
        assert found is not None
        assert all(grid.here.exact for grid in found.grids)
        row, column = found.breadth.present
        depths_told.append(len(figures(found.breadth.cells[row][: column + 1])) / (column + 1))
        thresholds.append(len(figures(cells[grid.present[1]] for grid in found.grids for cells in grid.cells)))
    assert fmean(depths_told) > 0.85
    assert min(thresholds) >= 2
    assert fmean(thresholds) >= 4
