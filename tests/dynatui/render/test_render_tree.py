"""The tree panel, the trees of earlier rounds, and the attention mask: labels, positions, legend, repetitions."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from decoder.events import Event, Limit, Round
from decoder.session.steering import Stage
from decoder.tree import Origin
from dynatui.render.ink import Rows, width_of
from dynatui.render.rounds import chance_percent, path_logprobs, path_to, piece_text, ranked, round_of
from dynatui.render.scene import Meters, Scene
from dynatui.render.tree import drawn_tree, past_trees, tree
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


def test_rounds_are_found_by_their_number_whatever_their_order() -> None:
    state = state_of([run(), *map(tree_round, (7, 3, 900))])
    found = [round_of(state, token) for token in state.lane.tokens]
    assert [event.round for event in found if event] == [7, 7, 7, 3, 3, 3, 900, 900, 900]
    assert round_of(state, replace(state.lane.tokens[0], round=5)) is None


def absurd(depth: int) -> Round:
    return structs.replace(
        tree_round(0),
        tokens=[0] * depth,
        parents=list(range(-1, depth - 1)),
        logprobs=[0.0] * depth,
        pieces=["x"] * depth,
        accepted=list(range(1, depth)),
    )


def test_a_path_of_absurd_depth_is_drawn_as_far_as_there_is_room() -> None:
    drawn = lines(nodes(absurd(20_000), 60))
    assert len(drawn) == 10
    assert drawn[-1] == f"+ {20_000 - 1 - ''.join(drawn).count('● -x 100%')} more nodes"


def chain(probability: float, tokens: Sequence[int] = (11, 12, 13, 14)) -> Round:
    event = tree_of(range(-1, len(tokens)), [0.0, *[math.log(probability)] * len(tokens)])
    return structs.replace(event, tokens=[2, *tokens], pieces=["x"] * len(event.tokens), position=2, committed=[99])


BEGUN, FIRST = structs.replace(run(), prompt_tokens=list(PROMPT)), structs.replace(tree_round(0), committed=[3, 2])
REPEATING, AFTER = structs.replace(chain(0.2), round=1), structs.replace(tree_round(2), position=3)
COMING_LATER = state_of(
    [
        structs.replace(run(), prompt_tokens=[8, 9]),
        structs.replace(chain(0.2), position=0),
        structs.replace(tree_round(1), position=1, committed=[11, 12, 13, 14]),
    ]
)
DRAFTED_ROOT_REPEATS = state_of(
    [
        structs.replace(run(("alg1",)), prompt_tokens=[11, 12, 13, 14, 9]),
        structs.replace(chain(0.2, (12, 13, 14)), method="alg1", tokens=[11, 12, 13, 14], logprobs=[-2.0] * 4),
    ]
)


def repeated(event: Round, prompt: Sequence[int] = PROMPT, width: int = 46) -> Rows:
    begun = structs.replace(BEGUN, prompt_tokens=list(prompt))
    return tree(Scene(state_of([begun, FIRST, structs.replace(event, round=1)])), width, 9)


def looked_up(*origins: Origin) -> Round:
    return structs.replace(tree_round(0), origins=["root", *origins])


def test_an_improbable_path_that_repeats_the_prompt_says_how_many_tokens_at_any_width() -> None:
    assert "\n".join(lines(repeated(chain(0.2), width=80))).count("repeats 6 tokens") == 1
    assert [row.count("○") for row in lines(repeated(chain(0.2))) if row.endswith("─○ -x rep. 6 │")] == [4]
    for width in range(30, 110):
        page = "\n".join(lines(repeated(chain(0.2), width=width)))
        assert re.search(r"○ -x (repeats 6( tokens)?|rep\. 6) ", page)


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
def test_every_node_is_counted_or_shown_once_on_a_line_to_its_parent_and_the_accepted_path_gives_way_last(
    event: Round, width: int, height: int
) -> None:
    shown = picture(event, width, height)
    found, of = shown.parents(), {name(node): name(parent) for node, parent in enumerate(event.parents) if node > 0}
    assert found == {guess: of[guess] for guess in found}
    assert len(shown.rows) <= height
    if height > 1:
        assert 1 + len(shown.marks) + shown.left_out == len(event.tokens)
    if len(shown.rows) > 1:
        assert not shown.loose_ends()
    path = {name(node) for node in event.accepted}
    if not path <= set(shown.marks.values()):
        rows_of_path = {row for (row, _), guess in shown.marks.items() if guess in path}
        assert {row for row, _ in shown.marks} == rows_of_path
        assert len(rows_of_path) >= height - 2


@given(trees(), WIDE, HEIGHTS)
def test_levels_are_columns_the_accepted_path_is_a_row_up_to_an_arrow_and_nodes_are_left_out_only_where_rows_are(
    event: Round, width: int, height: int
) -> None:
    shown = picture(event, width, height)
    assert not shown.left_out or len(shown.rows) == height
    depth = {name(node): level for node, level in enumerate(depths(event))}
    columns = {(depth[guess], cell) for (_, cell), guess in shown.marks.items()}
    assert len(columns) == len({level for level, _ in columns})
    row_of = {guess: row for (row, _), guess in shown.marks.items()}
    path = [name(node) for node in event.accepted if name(node) in row_of]
    if path:
        assert row_of[path[0]] == 1
    for parent, child in pairwise(path):
        begins = shown.rows[row_of[child]].lstrip("0123456789").startswith("→")
        assert row_of[child] == row_of[parent] or begins


@given(trees(), st.integers(1, 160), st.integers(0, 50), st.lists(st.sampled_from(LONG), min_size=60, max_size=60))
def test_no_row_is_wider_than_the_panel(event: Round, width: int, height: int, pieces: list[str]) -> None:
    told = structs.replace(event, pieces=pieces[: len(event.tokens)])
    rows = drawn_tree(told, width, height).rows
    seen = Scene(state_of([run(), told]))
    assert all(is_drawn(panel(seen, width, height), seen, (width, height)) for panel in (tree, mask))
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


def straight(nodes: int) -> Round:
    pieces = [f" w{node}" for node in range(nodes)]
    return structs.replace(tree_of(range(-1, nodes - 1), [0.0, *[-0.1] * (nodes - 1)]), pieces=pieces)


def mask(scene: Scene, width: int, height: int) -> Rows:
    return tree(replace(scene, mask=True), width, height)


def masked(nodes: int, height: int) -> Rows:
    return mask(Scene(state_of([run(), straight(nodes)])), 60, height)


def test_the_mask_counts_the_nodes_without_a_row() -> None:
    assert "+ 5 more nodes" in lines(masked(10, 9))[-2]


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


SMALLEST = (46, 25)
SIDE_BY_SIDE = 106
BELOW_A_LARGE_ONE = (structs.replace(tree_of([-1, *[0] * 9], accepted=[1]), round=5), tree_round(4))
EARLIER = [tree_round(number) for number in (5, 4, 3)]
HEADING = re.compile(r"── round (\d+)\b")
STAGES = Stage("drafted", tree_round(6)), Stage("verified", tree_round(6)), Stage("committed", tree_round(5))
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


def test_an_earlier_path_of_absurd_depth_is_left_out_at_little_cost() -> None:
    with patch("dynatui.render.rounds.chance_percent", wraps=chance_percent) as written:
        assert past_trees([tree_round(1), absurd(50_000)], 60, 20) == past_trees([tree_round(1)], 60, 20)
    assert written.call_count < 1000


def test_rows_that_the_newest_tree_leaves_free_show_as_many_earlier_ones_as_fit() -> None:
    for size, shown in (((38, 16), 2), ((46, 22), 3), ((46, 36), 5), ((61, 36), 5)):
        assert headed(tree(running(), *size)) == [5, 4, 3, 2, 1][:shown]
    events = [structs.replace(tree_round(number), accepted=[2 - number % 2]) for number in range(40)]
    for height in range(20, 70):
        rows = tree(scene_of(events), 46, height)
        assert headed(rows) == [39 - place for place in range(min(15, len(headed(rows))))]
        blank = sum(not row.strip("│ ") for row in lines(rows)[1:-1])
        assert blank <= 3 or len(headed(rows)) == 15, "one above the explanations, and less than an earlier path"


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
    for event, (_, section) in zip(events, shown, strict=False):
        whole = {name(node): name(parent) for node, parent in enumerate(event.parents) if node}
        path = {name(node): whole[name(node)] for node in event.accepted}
        assert Picture(section).parents() in (whole, path)


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
    held = [headed(tree(replace(running(), stage=stage), *SMALLEST)) for stage in STAGES]
    assert held == [[6, 5, 4, 3], [6, 5, 4, 3], [5, 4, 3, 2]]


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
        "what was looked up has marks of its own": lambda: [
            of(looked_up("draft", "lookup", "lookup", "draft", "lookup"), size=(width, 10)) for width in (60, 46, 44)
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
        "where all was looked up the legend is the same": lambda: of(
            looked_up("lookup", "lookup", "lookup", "lookup", "lookup")
        ),
        "tokens are readable in a narrow column": lambda: [
            piece_text(piece) for piece in (" old", "ing", ",", "  ", "", "␊")
        ],
        "a token that is inspected goes before a tree that is held": lambda: tree(
            replace(running(), stage=HELD[0], cursor=0), 70, 10
        ),
        "only long improbable repetitions are told those of what was generated too": lambda: [
            repeated(chain(probability, tokens), prompt)
            for probability, tokens, prompt in (
                (0.2, (3, 2, 3, 2), (3, 2)),
                (0.5, (11, 12, 13, 14), PROMPT),
                (0.01, (11, 12, 13), PROMPT),
                (0.2, (11, 12, 13, 9), PROMPT),
            )
        ],
        "what comes after a round is nothing that it repeats": lambda: tree(Scene(COMING_LATER, cursor=0), 46, 9),
        "a drafted root belongs to the path that repeats": lambda: tree(Scene(DRAFTED_ROOT_REPEATS), 80, 9),
        "a held tree and an inspected one say what they repeat": lambda: [
            tree(Scene(state_of([BEGUN, FIRST]), stage=Stage("drafted", REPEATING)), 80, 9),
            tree(Scene(state_of([BEGUN, FIRST, REPEATING, AFTER]), cursor=2), 80, 9),
        ],
        "a chain is one row or goes on in the next one": lambda: [
            picture(CHAIN, width, 20).rows for width in (100, 42)
        ],
        "several subtrees that go on have arrows of their own": lambda: picture(SUBTREES, 36, 20).rows,
        "indents that leave labels no room go on from the left": lambda: picture(CHAIN, 20, 20).rows,
        "columns are as wide as the longest name and long names are cut before a level is moved": lambda: [
            picture(LONG_NAME, width, 9).rows for width in (60, 42)
        ],
        "each row sees its own path": lambda: mask(running(), 44, 17),
        "a tree with more nodes than room says how many are left out": lambda: masked(60, 12),
        "a tree that is held is shown before it is verified": lambda: mask(
            replace(running(), stage=Stage("drafted", structs.replace(tree_round(9), accepted=[]))), 44, 16
        ),
        "the accepted path is inked and marked in the heading": lambda: inked(mask(running(), 44, 16)),
        "under the cursor the matrix is that of the tokens round": lambda: inked(
            mask(Scene(running().state, cursor=4), 44, 16)
        ),
        "before the first round the panel says what will come": lambda: mask(Scene(), 60, 5),
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
        "a smaller tree may be whole below a path": lambda: [
            past_trees(BELOW_A_LARGE_ONE, 42, height) for height in (8, 14)
        ],
        "on a slow line there is one earlier tree": lambda: tree(
            replace(running(), meters=Meters(slow_line=True)), 46, 36
        ),
    }
)
