"""Tests of the drawn tree attention mask."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from decoder.events import Round
from decoder.session.steering import Stage
from dynatui.render.rounds import path_to
from dynatui.render.scene import Scene
from dynatui.render.tree import mask
from tests.dynatui.render.extreme_scenes import SIZES, is_drawn, scenes
from tests.dynatui.render.golden import golden
from tests.dynatui.scripted_runs import lines, run, running, state_of, text_of, tree_round


def chain(nodes: int) -> Round:
    return structs.replace(
        tree_round(0),
        tokens=list(range(nodes)),
        parents=list(range(-1, nodes - 1)),
        logprobs=[0.0, *[-0.1] * (nodes - 1)],
        pieces=[f" w{node}" for node in range(nodes)],
        accepted=[],
    )


def test_ascii_has_no_halves() -> None:
    drawn = lines(mask(Scene(state_of([run(), chain(10)]), symbols="ascii"), 60, 9))
    assert not set("▀▄") & set("".join(drawn))
    assert "+ 5 more nodes" in drawn[-2]


def test_the_accepted_path_is_inked_and_marked_in_the_heading() -> None:
    rows = mask(running(), 44, 16)
    assert [span for span in rows[3] if span[1] == "accepted"] == [("● a           ", "accepted"), ("████", "accepted")]
    assert text_of(rows[1]).split()[1:-1] == ["●", "○", "●", "○", "○"]


def test_under_the_cursor_the_matrix_is_that_of_the_tokens_round() -> None:
    rows = mask(Scene(running().state, cursor=4), 44, 16)
    assert "round 2" in text_of(rows[0])
    assert any(ink == "caret" and "-t" in text for text, ink in rows[5])


def test_before_the_first_round_the_panel_says_what_will_come() -> None:
    assert "attention between the guesses" in lines(mask(Scene(), 60, 5))[1]


@pytest.mark.parametrize("height", [4, 5, 6, 9, 30])
def test_the_cell_is_always_explained(height: int) -> None:
    assert "filled cell: the row" in " ".join(lines(mask(running(), 60, height))) or height < 5


@given(st.integers(1, 30).flatmap(lambda size: st.tuples(*(st.integers(0, max(0, node - 1)) for node in range(size)))))
def test_a_node_sees_itself_and_what_its_parent_sees(above: tuple[int, ...]) -> None:
    parents, size = [-1, *above[1:]], len(above)
    event = structs.replace(
        tree_round(0), tokens=[0] * size, parents=parents, logprobs=[0.0] * size, pieces=[""] * size, accepted=[]
    )
    for node in range(1, size):
        assert path_to(event, node) == [*path_to(event, parents[node]), node]
    assert path_to(event, 0) == [0]


@given(scenes(), SIZES)
def test_any_scene_fits_any_size(scene: Scene, size: tuple[int, int]) -> None:
    assert is_drawn(mask(scene, *size), scene, size)


@given(st.integers(1, 80), SIZES, st.sampled_from(("block", "ascii")))
def test_any_tree_fits_any_size(nodes: int, size: tuple[int, int], symbols: str) -> None:
    scene = Scene(state_of([run(), chain(nodes)]), symbols="ascii" if symbols == "ascii" else "block")
    assert is_drawn(mask(scene, *size), scene, size)


test_golden = golden(
    {
        "each row sees its own path": lambda: mask(running(), 44, 17),
        "where rows are short two share a cell": lambda: mask(Scene(state_of([run(), chain(10)])), 60, 9),
        "both tokens of a shared row are named": lambda: mask(Scene(state_of([run(), chain(10)])), 60, 9),
        "a tree with more nodes than room says how many are left out": lambda: mask(
            Scene(state_of([run(), chain(60)])), 60, 12
        ),
        "a tree that is held is shown before it is verified": lambda: mask(
            replace(running(), stage=Stage("drafted", structs.replace(tree_round(9), accepted=[]))), 44, 16
        ),
    }
)
