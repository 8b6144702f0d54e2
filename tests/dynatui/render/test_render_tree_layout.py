"""Tests of the positions of nodes, read from drawn trees."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from decoder.events import Round
from dynatui.render.ink import width_of
from dynatui.render.rounds import path_logprobs, ranked
from dynatui.render.tree_rows import drawn_tree
from tests.dynatui.render.drawn_trees import Picture, name, tree_of, trees
from tests.dynatui.scripted_runs import lines

NARROW, WIDE = st.integers(13, 33), st.integers(34, 160)
WIDTHS, HEIGHTS = NARROW | WIDE, st.integers(1, 50)
LONG = ("world", "世界世界世界世界", "", "\n", " ", "extraordinarily")


def picture(event: Round, width: int, height: int) -> Picture:
    return Picture([line.rstrip() for line in lines(drawn_tree(event, width, height).rows)])


def depths(event: Round) -> list[int]:
    found = [0]
    for parent in event.parents[1:]:
        found.append(found[parent] + 1)
    return found


@given(trees(), WIDTHS, HEIGHTS)
def test_every_line_leads_from_a_node_to_its_own_parent_and_none_to_nothing(
    event: Round, width: int, height: int
) -> None:
    shown = picture(event, width, height)
    found, of = shown.parents(), {name(node): name(parent) for node, parent in enumerate(event.parents) if node > 0}
    assert found == {guess: of[guess] for guess in found}
    if len(shown.rows) > 1:
        assert not shown.loose_ends()


@given(trees(), WIDTHS, HEIGHTS)
def test_every_node_is_shown_once_or_counted_as_left_out(event: Round, width: int, height: int) -> None:
    shown = picture(event, width, height)
    assert len(shown.rows) <= height
    if height > 1:
        assert 1 + len(shown.marks) + shown.left_out == len(event.tokens)


@given(trees(), WIDE, HEIGHTS)
def test_nodes_are_left_out_only_where_rows_are(event: Round, width: int, height: int) -> None:
    shown = picture(event, width, height)
    assert not shown.left_out or len(shown.rows) == height


@given(trees(), WIDTHS, HEIGHTS)
def test_of_the_accepted_path_nothing_is_left_out_for_other_nodes(event: Round, width: int, height: int) -> None:
    shown = picture(event, width, height)
    path = {name(node) for node in event.accepted}
    if not path <= set(shown.marks.values()):
        rows_of_path = {row for (row, _), guess in shown.marks.items() if guess in path}
        assert {row for row, _ in shown.marks} == rows_of_path
        assert len(rows_of_path) >= height - 2


@given(trees(), WIDE, HEIGHTS)
def test_the_accepted_path_is_a_straight_row_until_it_goes_on_at_an_arrow(
    event: Round, width: int, height: int
) -> None:
    shown = picture(event, width, height)
    row_of = {guess: row for (row, _), guess in shown.marks.items()}
    path = [name(node) for node in event.accepted if name(node) in row_of]
    if path:
        assert row_of[path[0]] == 1
    for parent, child in pairwise(path):
        begins = shown.rows[row_of[child]].lstrip("0123456789").startswith("→")
        assert row_of[child] == row_of[parent] or begins


@given(trees(), WIDE, HEIGHTS)
def test_nodes_of_one_depth_stand_in_one_column(event: Round, width: int, height: int) -> None:
    depth = {name(node): level for node, level in enumerate(depths(event))}
    columns = {(depth[guess], cell) for (_, cell), guess in picture(event, width, height).marks.items()}
    assert len(columns) == len({level for level, _ in columns})


@given(trees(), st.integers(1, 160), st.integers(0, 50), st.lists(st.sampled_from(LONG), min_size=60, max_size=60))
def test_no_row_is_wider_than_the_panel(event: Round, width: int, height: int, pieces: list[str]) -> None:
    told = structs.replace(event, pieces=pieces[: len(event.tokens)])
    rows = drawn_tree(told, width, height).rows
    assert all(width_of(row) <= width for row in rows)
    assert len(rows) <= height
    assert rows == drawn_tree(told, width, height).rows


@given(trees(), st.integers(1, 30))
def test_what_is_shown_first_is_always_a_tree(event: Round, count: int) -> None:
    order = ranked(event, path_logprobs(event))
    assert sorted(order) == list(range(len(event.tokens)))
    assert order[: 1 + len(event.accepted)] == [0, *event.accepted]
    first = set(order[:count])
    assert all(event.parents[node] in first for node in first - {0})


CHAIN = tree_of(range(-1, 8), accepted=range(1, 9))


def test_a_chain_is_one_row() -> None:
    assert picture(CHAIN, 100, 20).rows[1:] == [
        "╰─● b 50% ───● c 50% ───● d 50% ───● e 50% ───● f 50% ───● g 50% ───● h 50% ───● i 50%   <1%"
    ]


def test_a_chain_that_a_row_has_no_room_for_goes_on_in_the_next_one() -> None:
    assert picture(CHAIN, 42, 20).rows[1:] == [
        "╰● b 50% ─● c 50% ─● d 50% ─● e 50% →1",
        "1→──● f 50% ─● g 50% ─● h 50% ─● i 50%",
    ]


def test_several_subtrees_that_go_on_have_arrows_of_their_own() -> None:
    event = tree_of([-1, 0, 0, 1, 2, 3, 4, 5, 6, 7, 7, 8], accepted=[2, 4])
    assert picture(event, 36, 20).rows == [
        "a  last token     %: prob.",
        "├● c 50% ─● e 50% ─○ g 50% →1",
        "╰○ b 50% ─○ d 50% ─○ f 50% →2",
        "1→──○ i 50% ─○ l 50%",
        "2→──○ h 50% ┬○ j 50%",
        "            ╰○ k 50%",
    ]


def test_indents_that_leave_labels_no_room_go_on_from_the_left() -> None:
    assert picture(CHAIN, 20, 20).rows == [
        "a       %: prob.",
        "╰─● b        50%",
        "  ╰─● c      50%",
        "    ╰─● d    50%",
        "      ╰─● e  50% →1",
        "1→───● f     50%",
        "     ╰─● g   50% →2",
        "2→───● h     50%",
        "     ╰─● i   50%",
    ]


def test_the_columns_are_as_wide_as_the_longest_name_and_long_names_are_cut_before_a_level_is_moved() -> None:
    event = tree_of(range(-1, 4))
    long = structs.replace(event, pieces=["a", " extraordinary", " c", " d", " e"])
    assert picture(long, 60, 9).rows[1] == "╰─○ extraordinary 50% ───○ c 50% ───○ d 50% ───○ e 50%    6%"
    assert picture(long, 42, 9).rows[1] == "╰○ extraor… 50% ─○ c 50% ─○ d 50% ─○ e 50%"
