"""The tree panel and the attention mask: labels, positions, legend, lookups and repetitions."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from decoder.events import Event, Limit, Round
from decoder.session.steering import Stage
from decoder.tree import Origin
from dynatui.render.ink import Rows, width_of
from dynatui.render.rounds import path_logprobs, path_to, piece_text, ranked, round_of
from dynatui.render.scene import Scene
from dynatui.render.tree import mask, tree
from dynatui.render.tree_rows import drawn_tree
from tests.dynatui.render.drawn_trees import Picture, name, tree_of, trees
from tests.dynatui.render.extreme_scenes import SIZES, is_drawn
from tests.dynatui.render.golden import golden, inked
from tests.dynatui.scripted_runs import HOSTILE, lines, plain_round, run, running, state_of, tree_round

UNVERIFIED = structs.replace(tree_round(6), accepted=[], committed=[], text="")
HELD = (Stage("drafted", UNVERIFIED), Stage("verified", tree_round(6)), Stage("committed", tree_round(6)))
HIDDEN = structs.replace(plain_round("hf", 0), draft_forwards=None)
PROMPT = (8, 3, 2, 11, 12, 13, 14, 9)


def nodes(event: Round, width: int = 42, height: int = 10) -> Rows:
    return drawn_tree(event, width, height).rows


def of(*events: Event, size: tuple[int, int] = (60, 10)) -> Rows:
    return tree(Scene(state_of([run(), *events])), *size)


def held(stage: Stage, width: int = 70) -> Rows:
    return tree(replace(running(), stage=stage), width, 10)


def alone(limited_by: Limit | None, draft_forwards: int = 0) -> Rows:
    own = {"knobs": tree_round(0).knobs, "draft_forwards": draft_forwards, "limited_by": limited_by}
    return of(tree_round(0), structs.replace(plain_round("dynatree", 6), **own), size=(46, 7))


def test_an_accepted_child_comes_before_siblings_of_higher_rank() -> None:
    event = structs.replace(tree_round(0), accepted=[2])
    assert [line.split()[1] for line in lines(nodes(event))[1:] if line[0] in "├╰"] == ["the", "a"]


@given(trees(), st.integers(0, 60), st.integers(0, 30))
def test_any_tree_fits_any_panel(event: Round, width: int, height: int) -> None:
    assert [len(row) for row in lines(of(event, size=(width, height)))] == [width] * height


def test_tokens_are_readable_in_a_narrow_column() -> None:
    pieces = (" old", "ing", ",", "  ", "", "␊")
    assert [piece_text(piece) for piece in pieces] == ["old", "-ing", ",", "␣␣", "∅", "⏎"]


def test_rounds_are_found_by_their_number_whatever_their_order() -> None:
    state = state_of([run(), *map(tree_round, (7, 3, 900))])
    found = [round_of(state, token) for token in state.lane.tokens]
    assert [event.round for event in found if event] == [7, 7, 7, 3, 3, 3, 900, 900, 900]
    assert round_of(state, replace(state.lane.tokens[0], round=5)) is None


def test_a_token_that_is_inspected_goes_before_a_tree_that_is_held() -> None:
    scene = replace(running(), stage=Stage("drafted", tree_round(6)), cursor=0)
    assert "round 1: 5 drafted, 2 accepted" in lines(tree(scene, 70, 10))[0]


def test_a_path_of_absurd_depth_is_drawn_as_far_as_there_is_room() -> None:
    depth = 20_000
    event = structs.replace(
        tree_round(0),
        tokens=[0] * depth,
        parents=list(range(-1, depth - 1)),
        logprobs=[0.0] * depth,
        pieces=["x"] * depth,
        accepted=list(range(1, depth)),
    )
    drawn = lines(nodes(event, 60))
    assert len(drawn) == 10
    assert drawn[-1] == f"+ {depth - 1 - ''.join(drawn).count('● -x 100%')} more nodes"


def chain(probability: float, tokens: Sequence[int] = (11, 12, 13, 14)) -> Round:
    event = tree_of(range(-1, len(tokens)), [0.0, *[math.log(probability)] * len(tokens)])
    return structs.replace(event, tokens=[2, *tokens], pieces=["x"] * len(event.tokens), position=2, committed=[99])


def repeated(event: Round, prompt: Sequence[int] = PROMPT, width: int = 46) -> str:
    first = structs.replace(tree_round(0), committed=[3, 2])
    begun = structs.replace(run(), prompt_tokens=list(prompt))
    state = state_of([begun, first, structs.replace(event, round=1)])
    return "\n".join(lines(tree(Scene(state), width, 9)))


def test_an_improbable_path_that_repeats_the_prompt_says_how_many_tokens_at_any_width() -> None:
    assert repeated(chain(0.2), width=80).count("repeats 6 tokens") == 1
    assert [row.count("○") for row in repeated(chain(0.2)).splitlines() if row.endswith("─○ -x rep. 6 │")] == [4]
    for width in range(30, 110):
        assert re.search(r"○ -x (repeats 6( tokens)?|rep\. 6) ", repeated(chain(0.2), width=width))


@pytest.mark.parametrize(
    ("event", "prompt", "told"),
    [
        (chain(0.2, (3, 2, 3, 2)), (3, 2), "rep. 4"),
        (chain(0.5), PROMPT, ""),
        (chain(0.01, (11, 12, 13)), PROMPT, ""),
        (chain(0.2, (11, 12, 13, 9)), PROMPT, ""),
    ],
    ids=["of what was generated", "a probable path", "a short one", "a new one"],
)
def test_only_long_improbable_repetitions_are_told(event: Round, prompt: Sequence[int], told: str) -> None:
    assert told in repeated(event, prompt)
    assert told or "rep" not in repeated(event, prompt)


def test_what_comes_after_a_round_is_nothing_that_it_repeats() -> None:
    begun = structs.replace(run(), prompt_tokens=[8, 9])
    later = structs.replace(tree_round(1), position=1, committed=[11, 12, 13, 14])
    state = state_of([begun, structs.replace(chain(0.2), position=0), later])
    assert "rep" not in "".join(lines(tree(Scene(state, cursor=0), 46, 9)))


def test_a_drafted_root_belongs_to_the_path_that_repeats() -> None:
    event = structs.replace(chain(0.2, (12, 13, 14)), method="alg1", tokens=[11, 12, 13, 14], logprobs=[-2.0] * 4)
    begun = structs.replace(run(("alg1",)), prompt_tokens=[11, 12, 13, 14, 9])
    assert "repeats 4 tokens" in "".join(lines(tree(Scene(state_of([begun, event])), 80, 9)))


def test_a_held_tree_and_an_inspected_one_say_what_they_repeat() -> None:
    begun, first = structs.replace(run(), prompt_tokens=list(PROMPT)), structs.replace(tree_round(0), committed=[3, 2])
    event = structs.replace(chain(0.2), round=1)
    waiting = Scene(state_of([begun, first]), stage=Stage("drafted", event))
    later = structs.replace(tree_round(2), position=3)
    inspected = Scene(state_of([begun, first, event, later]), cursor=2)
    assert all("repeats 6 tokens" in "".join(lines(tree(scene, 80, 9))) for scene in (waiting, inspected))


def looked_up(*origins: Origin) -> Round:
    return structs.replace(tree_round(0), origins=["root", *origins])


MIXED = looked_up("draft", "lookup", "lookup", "draft", "lookup")
ALL_LOOKED_UP = looked_up("lookup", "lookup", "lookup", "lookup", "lookup")


test_golden = golden(
    {
        "the tree shows probabilities and the accepted path": lambda: tree(running(), 46, 10),
        "where columns have no room the levels are indents": lambda: tree(running(), 30, 9),
        "with room there are bars of the paths": lambda: tree(running(), 60, 10),
        "a held tree shows no token of the round before and no raw text": lambda: held(
            Stage("drafted", structs.replace(UNVERIFIED, pieces=[HOSTILE] * 6))
        ),
        "without a draft model every guess of every method was looked up": lambda: tree(
            Scene(state_of([structs.replace(run(), draft="lookup"), tree_round(0)])), 60, 10
        ),
        "the accepted path and the lines to it are in its ink": lambda: inked(nodes(tree_round(0))),
        "a tree that is too large keeps the accepted path and what lost beside it": lambda: nodes(
            tree_of([-1, 0, 0, 0, 1, 1, 2, 2, 2], [0, -1, -0.1, -9, -9, -9, -0.1, -0.1, -0.1], accepted=[1, 4]), 34, 6
        ),
        "a round without a draft says so and why where the recording tells it": lambda: [
            alone(reason) for reason in ("cost", "context", None)
        ],
        "a draft of which nothing was kept is told from none": lambda: alone("cost", draft_forwards=2),
        "impossible probabilities of a recording are bounded": lambda: nodes(
            structs.replace(tree_round(0), logprobs=[0.0, 1e300, -1e300, 5.0, -1e308, math.log(0.5)]), 46
        ),
        "without a round the panel says what will come": lambda: tree(Scene(), 60, 5),
        "a method that hides its draft says so": lambda: tree(Scene(state_of([run(("hf",)), HIDDEN])), 60, 8),
        "under the cursor the tree is that of the tokens round and the targets own token is in none": lambda: [
            inked(tree(Scene(running().state, cursor=cursor), 46, 10)) for cursor in (4, 5)
        ],
        "a tree that is held says how far it is": lambda: [held(stage) for stage in HELD],
        "in a narrow panel the title is still whole": lambda: [
            *(held(stage, 44) for stage in HELD[:2]),
            held(Stage("committed", tree_round(123456)), 44),
        ],
        "a round that was cut has no token of the targets": lambda: of(
            structs.replace(tree_round(0), committed=[11, 13], text=" at")
        ),
        "the mask is drawn instead where it is asked for": lambda: tree(replace(running(), mask=True), 46, 10),
        "what was looked up has marks of its own and a long legend gives up words first": lambda: [
            of(MIXED, size=(width, 10)) for width in (60, 46, 44)
        ],
        "a root that was drafted is shown as a guess": lambda: tree(
            Scene(
                state_of([run(("alg1",)), structs.replace(tree_round(0), method="alg1", accepted=[0, 1], knobs=None)])
            ),
            46,
            10,
        ),
        "of one level the probabilities are those of the paths": lambda: nodes(
            tree_of([-1, 0, 0], [0, math.log(0.5), math.log(0.25)])
        ),
        "where all was looked up the legend names no other marks": lambda: of(
            looked_up("lookup", "lookup", "lookup", "lookup", "lookup")
        ),
    }
)


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
LONG_NAME = structs.replace(tree_of(range(-1, 4)), pieces=["a", " extraordinary", " c", " d", " e"])
SUBTREES = tree_of([-1, 0, 0, 1, 2, 3, 4, 5, 6, 7, 7, 8], accepted=[2, 4])

test_golden_layout = golden(
    {
        "a chain is one row or goes on in the next one": lambda: [
            picture(CHAIN, width, 20).rows for width in (100, 42)
        ],
        "several subtrees that go on have arrows of their own": lambda: picture(SUBTREES, 36, 20).rows,
        "indents that leave labels no room go on from the left": lambda: picture(CHAIN, 20, 20).rows,
        "columns are as wide as the longest name and long names are cut before a level is moved": lambda: [
            picture(LONG_NAME, width, 9).rows for width in (60, 42)
        ],
    }
)


def straight(nodes: int) -> Round:
    pieces = [f" w{node}" for node in range(nodes)]
    return structs.replace(tree_of(range(-1, nodes - 1), [0.0, *[-0.1] * (nodes - 1)]), pieces=pieces)


def masked(nodes: int, height: int, symbols: str = "block") -> Rows:
    return mask(
        Scene(state_of([run(), straight(nodes)]), symbols="ascii" if symbols == "ascii" else "block"), 60, height
    )


def test_ascii_has_no_halves() -> None:
    drawn = lines(masked(10, 9, "ascii"))
    assert not set("▀▄") & set("".join(drawn))
    assert "+ 5 more nodes" in drawn[-2]


@pytest.mark.parametrize("height", [5, 6, 9, 30])
def test_the_cell_is_always_explained(height: int) -> None:
    assert "filled cell: the row" in " ".join(lines(mask(running(), 60, height)))


@given(st.integers(1, 30).flatmap(lambda size: st.tuples(*(st.integers(0, max(0, node - 1)) for node in range(size)))))
def test_a_node_sees_itself_and_what_its_parent_sees(above: tuple[int, ...]) -> None:
    parents = [-1, *above[1:]]
    event = tree_of(parents)
    for node in range(1, len(above)):
        assert path_to(event, node) == [*path_to(event, parents[node]), node]
    assert path_to(event, 0) == [0]


@given(st.integers(1, 80), SIZES, st.sampled_from(("block", "ascii")))
def test_any_tree_fits_any_size(nodes: int, size: tuple[int, int], symbols: str) -> None:
    scene = Scene(state_of([run(), straight(nodes)]), symbols="ascii" if symbols == "ascii" else "block")
    assert is_drawn(mask(scene, *size), scene, size)


test_golden_mask = golden(
    {
        "each row sees its own path": lambda: mask(running(), 44, 17),
        "where rows are short two share a cell": lambda: masked(10, 9),
        "both tokens of a shared row are named": lambda: masked(10, 9),
        "a tree with more nodes than room says how many are left out": lambda: masked(60, 12),
        "a tree that is held is shown before it is verified": lambda: mask(
            replace(running(), stage=Stage("drafted", structs.replace(tree_round(9), accepted=[]))), 44, 16
        ),
        "the accepted path is inked and marked in the heading": lambda: inked(mask(running(), 44, 16)),
        "under the cursor the matrix is that of the tokens round": lambda: inked(
            mask(Scene(running().state, cursor=4), 44, 16)
        ),
        "before the first round the panel says what will come": lambda: mask(Scene(), 60, 5),
    }
)
