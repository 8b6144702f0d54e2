"""Tests of the tree panel."""

import math
import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from decoder.events import Limit, Round
from decoder.session.steering import Stage
from decoder.tree import Origin
from dynatui.render.ink import Rows
from dynatui.render.rounds import piece_text, round_of
from dynatui.render.scene import Scene
from dynatui.render.tree import tree
from dynatui.render.tree_rows import drawn_tree
from tests.dynatui.render.drawn_trees import tree_of, trees
from tests.dynatui.render.extreme_scenes import SIZES, is_drawn, scenes
from tests.dynatui.render.golden import golden
from tests.dynatui.scripted_runs import HOSTILE, lines, plain_round, run, running, state_of, tree_round


def nodes(event: Round, width: int, height: int) -> Rows:
    return drawn_tree(event, width, height).rows


def test_the_accepted_path_and_the_lines_to_it_are_in_its_ink() -> None:
    rows = nodes(tree_round(0), 42, 10)
    assert "".join(text for text, ink in rows[1] if ink == "accepted") == "├─● a   60% ┬─● -t    50%"
    assert not [row for row in rows[2:] if "accepted" in {ink for _, ink in row}]


def test_an_accepted_child_comes_before_siblings_of_higher_rank() -> None:
    event = structs.replace(tree_round(0), accepted=[2])
    assert [line.split()[1] for line in lines(nodes(event, 42, 10))[1:] if line[0] in "├╰"] == ["the", "a"]


def test_a_tree_that_is_too_large_keeps_the_accepted_path_and_what_lost_beside_it() -> None:
    event = tree_of([-1, 0, 0, 0, 1, 1, 2, 2, 2], [0, -1, -0.1, -9, -9, -9, -0.1, -0.1, -0.1], accepted=[1, 4])
    assert [line.rstrip() for line in lines(nodes(event, 34, 6))] == [
        "a  last token  %: prob.  path",
        "├─● b 37% ─┬─● e <1%      <1%",
        "│          ╰─○ f <1%      <1%",
        "├─○ c 90% ───○ g 90%      82%",
        "╰─○ d <1%                 <1%",
        "+ 2 more nodes",
    ]


def _alone(limited_by: Limit | None, draft_forwards: int = 0) -> list[str]:
    event = structs.replace(
        plain_round("dynatree", 6), knobs=tree_round(0).knobs, draft_forwards=draft_forwards, limited_by=limited_by
    )
    return lines(tree(Scene(state_of([run(), tree_round(0), event])), 46, 7))


def test_a_round_without_a_draft_says_so_and_why() -> None:
    shown = _alone("cost")
    assert shown[0].startswith("╭─ Tree ─ round 7: no draft ─")
    assert "the target decodes alone: guesses would" in shown[2]
    assert "cost more time than they save" in shown[3]
    assert "+ target: at" in shown[-2]
    assert "rejected" not in shown[-2]


def test_a_round_without_a_draft_at_the_end_of_the_context_says_so() -> None:
    assert "no room for guesses" in "".join(_alone("context"))


def test_a_recording_that_does_not_tell_why_is_shown_without_a_reason() -> None:
    shown = _alone(None)
    assert "the target decodes alone " in shown[2]
    assert "save" not in "".join(shown)


def test_a_draft_of_which_nothing_was_kept_is_told_from_none() -> None:
    assert "round 7: no guess kept" in _alone("cost", draft_forwards=2)[0]


@given(trees(), st.integers(0, 60), st.integers(0, 30))
def test_any_tree_fits_any_panel(event: Round, width: int, height: int) -> None:
    rows = lines(tree(Scene(state_of([run(), event])), width, height))
    assert [len(row) for row in rows] == [width] * height


def test_impossible_probabilities_of_a_recording_are_bounded() -> None:
    event = structs.replace(tree_round(0), logprobs=[0.0, 1e300, -1e300, 5.0, -1e308, math.log(0.5)])
    assert "100%" in " ".join(lines(nodes(event, 46, 10)))


def test_tokens_are_readable_in_a_narrow_column() -> None:
    pieces = (" old", "ing", ",", "  ", "", "␊")
    assert [piece_text(piece) for piece in pieces] == ["old", "-ing", ",", "␣␣", "∅", "⏎"]


def test_without_a_round_the_panel_says_what_will_come() -> None:
    assert "grows a tree of guesses here" in " ".join(lines(tree(Scene(), 60, 5)))


def test_a_method_that_hides_its_draft_says_so() -> None:
    hidden = structs.replace(plain_round("hf", 0), draft_forwards=None)
    assert "does not show its draft" in " ".join(lines(tree(Scene(state_of([run(("hf",)), hidden])), 60, 8)))


def test_under_the_cursor_the_tree_is_that_of_the_tokens_round() -> None:
    state = running().state
    rows = tree(Scene(state, cursor=4), 46, 10)
    assert "round 2: 5 drafted" in lines(rows)[0]
    assert [text.strip() for row in rows for text, ink in row if ink == "caret"] == ["● -t", "50%"]
    assert "target: a time" in lines(rows)[-2]


def test_the_targets_own_token_is_in_no_tree() -> None:
    rows = tree(Scene(running().state, cursor=5), 46, 10)
    assert "round 2: 5 drafted" in lines(rows)[0]
    assert not [text for row in rows for text, ink in row if ink == "caret"]


def test_rounds_are_found_by_their_number_whatever_their_order() -> None:
    events = [tree_round(number) for number in (7, 3, 900)]
    state = state_of([run(), *events])
    found = [round_of(state, token) for token in state.lane.tokens]
    assert [event.round for event in found if event] == [7, 7, 7, 3, 3, 3, 900, 900, 900]
    assert round_of(state, replace(state.lane.tokens[0], round=5)) is None


def test_a_tree_that_is_held_says_how_far_it_is() -> None:
    drafted = structs.replace(tree_round(6), accepted=[], committed=[], text="")
    stages = Stage("drafted", drafted), Stage("verified", tree_round(6)), Stage("committed", tree_round(6))
    titles = {stage.name: lines(tree(replace(running(), stage=stage), 70, 10))[0] for stage in stages}
    assert "round 7: 5 drafted, not yet verified" in titles["drafted"]
    assert "round 7: 5 drafted, 2 accepted, not committed" in titles["verified"]
    assert "round 7: 5 drafted, 2 accepted" in titles["committed"]


def test_in_a_narrow_panel_the_title_is_still_whole() -> None:
    stages = Stage("drafted", structs.replace(tree_round(6), accepted=[])), Stage("verified", tree_round(6))
    titles = [lines(tree(replace(running(), stage=stage), 44, 10))[0] for stage in stages]
    assert "round 7: 5 drafted, unverified ─" in titles[0]
    assert "round 7: 2 kept, not committed ─" in titles[1]
    late = replace(running(), stage=Stage("committed", tree_round(123456)))
    assert "round 123457: 2 of 5 accepted ─" in lines(tree(late, 44, 10))[0]


def test_a_token_that_is_inspected_goes_before_a_tree_that_is_held() -> None:
    scene = replace(running(), stage=Stage("drafted", tree_round(6)), cursor=0)
    assert "round 1: 5 drafted, 2 accepted" in lines(tree(scene, 70, 10))[0]


def test_a_round_that_was_cut_has_no_token_of_the_targets() -> None:
    event = structs.replace(tree_round(0), committed=[11, 13], text=" at")
    assert "target" not in lines(tree(Scene(state_of([run(), event])), 60, 10))[-2]


@given(scenes(), SIZES)
def test_any_scene_fits_any_size(scene: Scene, size: tuple[int, int]) -> None:
    assert is_drawn(tree(scene, *size), scene, size)


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
    drawn = lines(nodes(event, 60, 10))
    assert len(drawn) == 10
    assert drawn[-1] == f"+ {depth - 1 - ''.join(drawn).count('● -x 100%')} more nodes"


def test_the_mask_is_drawn_instead_where_it_is_asked_for() -> None:
    assert "who sees whom" in lines(tree(replace(running(), mask=True), 46, 10))[0]


def _chain(probability: float, tokens: tuple[int, ...] = (11, 12, 13, 14)) -> Round:
    count = len(tokens)
    return structs.replace(
        tree_round(0),
        tokens=[2, *tokens],
        parents=list(range(-1, count)),
        logprobs=[0.0, *[math.log(probability)] * count],
        pieces=["x"] * (count + 1),
        position=2,
        accepted=[],
        committed=[99],
    )


def _told(event: Round, prompt: tuple[int, ...], size: tuple[int, int] = (46, 9)) -> str:
    first = structs.replace(tree_round(0), committed=[3, 2])
    begun = structs.replace(run(), prompt_tokens=list(prompt))
    return "\n".join(lines(tree(Scene(state_of([begun, first, structs.replace(event, round=1)])), *size)))


def test_an_improbable_path_that_repeats_the_prompt_says_how_many_tokens() -> None:
    prompt = (8, 3, 2, 11, 12, 13, 14, 9)
    assert _told(_chain(0.2), prompt, (80, 9)).count("repeats 6 tokens") == 1
    narrow = _told(_chain(0.2), prompt).splitlines()
    assert [row.count("○") for row in narrow if row.endswith("─○ -x rep. 6 │")] == [4]


def test_at_any_width_there_is_room_to_say_so() -> None:
    for width in range(30, 110):
        told = _told(_chain(0.2), (8, 3, 2, 11, 12, 13, 14, 9), (width, 9))
        assert re.search(r"○ -x (repeats 6( tokens)?|rep\. 6) ", told)


def test_a_path_that_repeats_what_was_generated_says_so_too() -> None:
    assert "rep. 4" in _told(_chain(0.2, (3, 2, 3, 2)), (3, 2))


def test_a_probable_path_a_short_one_and_one_that_is_new_say_nothing_of_repetition() -> None:
    prompt = (8, 3, 2, 11, 12, 13, 14, 9)
    assert "rep" not in _told(_chain(0.5), prompt)
    assert "rep" not in _told(_chain(0.01, (11, 12, 13)), prompt)
    assert "rep" not in _told(_chain(0.2, (11, 12, 13, 9)), prompt)


def test_what_comes_after_a_round_is_nothing_that_it_repeats() -> None:
    begun = structs.replace(run(), prompt_tokens=[8, 9])
    first = structs.replace(_chain(0.2), position=0)
    later = structs.replace(tree_round(1), position=1, committed=[11, 12, 13, 14])
    state = state_of([begun, first, later])
    assert "rep" not in "".join(lines(tree(Scene(state, cursor=0), 46, 9)))


def test_a_drafted_root_belongs_to_the_path_that_repeats() -> None:
    event = structs.replace(_chain(0.2, (12, 13, 14)), method="alg1", tokens=[11, 12, 13, 14], logprobs=[-2.0] * 4)
    begun = structs.replace(run(("alg1",)), prompt_tokens=[11, 12, 13, 14, 9])
    assert "repeats 4 tokens" in "".join(lines(tree(Scene(state_of([begun, event])), 80, 9)))


def test_a_held_tree_and_an_inspected_one_say_what_they_repeat() -> None:
    prompt = [8, 3, 2, 11, 12, 13, 14, 9]
    begun, first = structs.replace(run(), prompt_tokens=prompt), structs.replace(tree_round(0), committed=[3, 2])
    chain = structs.replace(_chain(0.2), round=1)
    held = Scene(state_of([begun, first]), stage=Stage("drafted", chain))
    later = structs.replace(tree_round(2), position=3)
    inspected = Scene(state_of([begun, first, chain, later]), cursor=2)
    assert all("repeats 6 tokens" in "".join(lines(tree(scene, 80, 9))) for scene in (held, inspected))


def _of(*origins: Origin) -> Round:
    return structs.replace(tree_round(0), origins=["root", *origins])


def test_what_was_looked_up_has_marks_of_its_own() -> None:
    event = _of("draft", "lookup", "lookup", "draft", "lookup")
    shown = lines(tree(Scene(state_of([run(), event])), 60, 10))
    named = dict(zip(event.pieces, range(6), strict=True))
    expected = {(True, True): "◆", (True, False): "◇", (False, True): "●", (False, False): "○"}
    for piece, node in list(named.items())[1:]:
        mark = expected[event.origins[node] == "lookup", node in event.accepted]
        assert f"{mark} {piece_text(piece)}" in "".join(shown)
    assert "●◆ accepted  ○◇ rejected  ◆◇ looked up" in shown[-2]


def test_where_all_was_looked_up_the_legend_names_no_other_marks() -> None:
    shown = lines(tree(Scene(state_of([run(), _of("lookup", "lookup", "lookup", "lookup", "lookup")])), 60, 10))
    assert "◆ accepted  ◇ rejected  ◆◇ looked up  + target: a" in shown[-2]
    assert not set("●○") & set("".join(shown))


def test_a_legend_that_is_too_long_gives_up_words_before_the_target_s_token() -> None:
    state = state_of([run(), _of("draft", "lookup", "lookup", "draft", "lookup")])
    for width in (60, 46, 44):
        legend = lines(tree(Scene(state), width, 10))[-2]
        assert "looked up" in legend
        assert legend.rstrip(" │").endswith(("+ a time", "+ target: a time"))


def test_a_tree_of_the_draft_alone_does_not_speak_of_lookups() -> None:
    assert "looked up" not in "".join(lines(tree(running(), 60, 10)))


test_golden = golden(
    {
        "the tree shows probabilities and the accepted path": lambda: tree(running(), 46, 10),
        "where columns have no room the levels are indents": lambda: tree(running(), 30, 9),
        "with room there are bars of the paths": lambda: tree(running(), 60, 10),
        "of one level the probabilities are those of the paths": lambda: (math.log(0.5), math.log(0.25)),
        "a root that was drafted is shown as a guess": lambda: math.log(0.5),
        "a held tree shows no token of the round before and no raw text": lambda: tree(
            replace(
                running(), stage=Stage("drafted", structs.replace(tree_round(6), accepted=[], pieces=[HOSTILE] * 6))
            ),
            70,
            10,
        ),
        "without a draft model every guess of every method was looked up": lambda: tree(
            Scene(state_of([structs.replace(run(), draft="lookup"), tree_round(0)])), 60, 10
        ),
    }
)
