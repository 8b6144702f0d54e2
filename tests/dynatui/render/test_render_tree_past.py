"""The trees of earlier rounds in the tree panel."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from decoder.events import Round
from decoder.session.steering import Stage
from dynatui.render.ink import Rows
from dynatui.render.scene import Meters, Scene
from dynatui.render.tree import tree
from dynatui.render.tree_labels import percent
from dynatui.render.tree_rows import past_trees
from tests.dynatui.render.drawn_trees import Picture, name, tree_of, trees
from tests.dynatui.render.extreme_scenes import is_drawn
from tests.dynatui.render.golden import golden, inked
from tests.dynatui.scripted_runs import (
    HOSTILE,
    delayed_run,
    drawn_round,
    lines,
    plain_round,
    run,
    running,
    state_of,
    tree_round,
)

SMALLEST = (46, 25)
SIDE_BY_SIDE = 106
EARLIER = [tree_round(number) for number in (5, 4, 3)]
HEADING = re.compile(r"── round (\d+)\b")
HELD = Stage("drafted", tree_round(6)), Stage("verified", tree_round(6)), Stage("committed", tree_round(5))
DRAFTED_ROOT = structs.replace(tree_round(0), method="alg1", accepted=[0, 1])
WITHOUT_GUESSES = structs.replace(tree_of([-1]), round=1, pieces=[" a"], limited_by=None)


def headed(rows: Rows) -> list[int]:
    return [int(number) for line in lines(rows) for number in HEADING.findall(line)]


def numbered(events: Sequence[Round]) -> list[Round]:
    return [
        structs.replace(event, round=number, tokens=[1000 + token for token in event.tokens])
        for number, event in enumerate(events)
    ]


def scene_of(events: Sequence[Round]) -> Scene:
    return Scene(state_of([run(), *events]))


def test_no_tree_is_whole_below_one_that_is_not() -> None:
    large = structs.replace(tree_of([-1, *[0] * 9], accepted=[1]), round=5)
    assert [len(past_trees([large, tree_round(4)], 42, height)) for height in (8, 14)] == [4, 14]


def test_an_earlier_path_of_absurd_depth_is_left_out_at_little_cost() -> None:
    depth = 50_000
    absurd = structs.replace(
        tree_round(0),
        tokens=[0] * depth,
        parents=list(range(-1, depth - 1)),
        logprobs=[0.0] * depth,
        pieces=["x"] * depth,
        accepted=list(range(1, depth)),
    )
    with patch("dynatui.render.tree_labels.percent", wraps=percent) as written:
        assert past_trees([tree_round(1), absurd], 60, 20) == past_trees([tree_round(1)], 60, 20)
    assert written.call_count < 1000


def test_rows_that_the_newest_tree_leaves_free_show_as_many_earlier_ones_as_fit() -> None:
    for size, shown in (((38, 16), 3), ((46, 22), 3), ((46, 36), 5), ((61, 36), 5)):
        assert headed(tree(running(), *size)) == [5, 4, 3, 2, 1][:shown]
    events = [structs.replace(tree_round(number), accepted=[2 - number % 2]) for number in range(40)]
    for height in range(20, 70):
        rows = tree(scene_of(events), 46, height)
        assert headed(rows) == [39 - place for place in range(min(15, len(headed(rows))))]
        blank = sum(not row.strip("│ ") for row in lines(rows)[1:-1])
        assert blank <= 3 or len(headed(rows)) == 15, "one above the explanations, and less than an earlier path"


def test_on_a_slow_line_there_is_one_earlier_tree() -> None:
    slow = replace(running(), meters=Meters(slow_line=True))
    assert headed(tree(slow, 46, 36)) == [5]


def test_an_expanded_tree_fills_its_rows_with_earlier_rounds() -> None:
    events = [structs.replace(tree_round(number), accepted=[2 - number % 2]) for number in range(40)]
    rows = tree(replace(scene_of(events), maximised=True), 120, 38)
    page = lines(rows)
    assert sum(bool(HEADING.search(row)) for row in page) >= 5, "several rows of earlier trees"
    assert headed(rows) == [39 - place for place in range(15)]
    assert sum(not row.strip("│ ") for row in page[1:-1]) <= 12


@given(st.lists(trees(), min_size=2, max_size=5), st.integers(17, 190), st.integers(1, 70))
def test_for_earlier_trees_nothing_of_the_newest_is_cut(events: list[Round], width: int, height: int) -> None:
    events = numbered(events)
    alone = lines(tree(scene_of(events[-1:]), width, height))
    beside = lines(tree(scene_of(events), width, height))
    first = next((place for place, row in enumerate(beside) if HEADING.search(row)), None)
    if first is None:
        assert beside == alone
    else:
        assert [row for row in beside[:first] if row.strip("│ ")] == [row for row in alone[:-1] if row.strip("│ ")]
        assert [len(row) for row in beside] == [width] * height


@given(st.lists(trees(), min_size=1, max_size=6), st.integers(13, 190), st.integers(0, 70))
def test_an_earlier_tree_is_whole_or_its_accepted_path_or_not_there(
    events: list[Round], width: int, height: int
) -> None:
    events = numbered(events[: 3 if width >= SIDE_BY_SIDE else None])[::-1]
    rows = lines(past_trees(events, width, height))
    assert len(rows) <= height
    assert max(map(len, rows), default=0) <= width
    shown = sections(rows, width)
    assert [number for number, _ in shown] == [event.round + 1 for event in events][: len(shown)]
    cut = list[bool]()
    for event, (_, section) in zip(events, shown, strict=False):
        whole = {name(node): name(parent) for node, parent in enumerate(event.parents) if node}
        path = {name(node): whole[name(node)] for node in event.accepted}
        found = Picture(section).parents()
        assert found in (whole, path)
        cut += [found != whole] if whole != path else []
    assert width >= SIDE_BY_SIDE or cut == sorted(cut), "the first ones are whole"


def sections(rows: Sequence[str], width: int) -> list[tuple[int, list[str]]]:
    starts = [found.start() for found in HEADING.finditer(rows[0])] if rows else []
    if width >= SIDE_BY_SIDE:
        cells = (width - 4) // 3
        columns = [[row[start : start + cells].rstrip() for row in rows] for start in starts]
    else:
        heads = [*(place for place, row in enumerate(rows) if HEADING.match(row)), len(rows)]
        columns = [[row.rstrip() for row in rows[start:end]] for start, end in pairwise(heads)]
    return [(int(HEADING.findall(column[0])[0]), column) for column in columns]


def test_they_are_those_before_the_round_that_is_looked_at_or_held() -> None:
    state = running().state
    assert [headed(tree(Scene(state, cursor=cursor), *SMALLEST)) for cursor in (0, 4, 13)] == [[], [1], [4, 3, 2, 1]]
    back = state.lane.past[:4]
    assert headed(tree(scene_of(back), *SMALLEST)) == [3, 2, 1]
    assert headed(tree(replace(scene_of(back), whole=state, cursor=16), *SMALLEST)) == [5, 4, 3, 2]
    held = [headed(tree(replace(running(), stage=stage), *SMALLEST)) for stage in HELD]
    assert held == [[6, 5, 4, 3], [6, 5, 4, 3], [5, 4, 3, 2]]


@pytest.mark.parametrize("height", range(1, 40))
def test_hostile_rounds_fit_any_size_in_ascii_too(height: int) -> None:
    hostile = structs.replace(
        tree_round(10**15), logprobs=[0.0] + [1e308] * 5, pieces=[HOSTILE, "", "\n", "世界", "x", "y"]
    )
    wide = structs.replace(tree_round(3), pieces=["世界" * 20] * 6, accepted=[0, 1, 3])
    scene = scene_of([hostile, wide, hostile, wide, hostile])
    for width in range(1 + height % 3, 140, 3):
        assert is_drawn(tree(scene, width, height), scene, (width, height))
    ascii_scene = replace(running(), symbols="ascii")
    assert all(is_drawn(tree(ascii_scene, width, height), ascii_scene, (width, height)) for width in (40, 70, 120))


test_golden = golden(
    {
        "the trees of the last three rounds stand below the newest": lambda: tree(
            scene_of([tree_round(0), *(structs.replace(tree_round(n), accepted=[2]) for n in (1, 2)), tree_round(3)]),
            *SMALLEST,
        ),
        "where whole trees have no room there are the accepted paths of the oldest": lambda: past_trees(EARLIER, 42, 8),
        "the panel shows every row of an earlier tree": lambda: [tree(running(), 61, height) for height in (22, 21)],
        "in a wide panel the earlier trees stand side by side": lambda: [
            past_trees(EARLIER, width, 4) for width in (106, 105)
        ],
        "a root that was drafted keeps its row": lambda: [past_trees([DRAFTED_ROOT], 42, height) for height in (3, 2)],
        "a caption stays beside the tree that it is about": lambda: tree(
            replace(running(), stage=Stage("drafted", structs.replace(tree_round(6), accepted=[])), panel="tree"),
            60,
            30,
        ),
        "a round without a draft has a heading alone and methods without drafts have none": lambda: (
            past_trees([plain_round("dynatree", 4), tree_round(3)], 42, 3),
            past_trees([plain_round("dynatree", 4), plain_round("dynatree", 4), plain_round("dynatree", 4)], 42, 30),
            past_trees([], 42, 30),
            past_trees([structs.replace(plain_round("hf", 0), draft_forwards=None)], 42, 30),
        ),
        "a heading tells the round where there is no room for more": lambda: past_trees(
            [WITHOUT_GUESSES, tree_round(0)], 13, 2
        ),
        "they are dimmer than the newest": lambda: inked(tree(running(), *SMALLEST)),
        "what stands below is the least for a tree of which nothing was accepted": lambda: past_trees(
            [structs.replace(tree_round(3), accepted=[])], 42, 3
        ),
        "a tree that was drawn tells its shape": lambda: tree(
            Scene(state_of([delayed_run(), drawn_round(0), drawn_round(1, told=False), drawn_round(2)])), 60, 30
        ),
    }
)
