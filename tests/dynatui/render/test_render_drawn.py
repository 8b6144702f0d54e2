"""Tests of the panels for sampled trees: shape, draws, acceptance probability, and the verifier's actions."""

import math
import re

import pytest
from msgspec import structs

from decoder.events import Event, Knob, Round, Verification
from dynatui.render import cards, sliders
from dynatui.render.inspect import inspect
from dynatui.render.scene import Scene
from dynatui.render.status import status
from dynatui.render.tree import tree
from dynatui.render.words import drawing_words, shape_sentence, shape_words
from dynatui.state.run_state import RunState
from tests.dynatui.render.golden import golden
from tests.dynatui.scripted_runs import (
    HOSTILE,
    delayed_run,
    drawn_round,
    lines,
    plain_round,
    run,
    sampled_round,
    sampled_run,
    state_of,
)


def drawn(*more: Event, first: Round | None = None) -> RunState:
    return state_of([delayed_run(), first or drawn_round(0), *more])


def label_of(piece: str, state: RunState, width: int = 80) -> list[str]:
    page = "\n".join(lines(tree(Scene(state), width, 16)))
    found = re.search(rf"[●○] {piece} +([x\d%< ]*%)", page)
    return found[1].split() if found else []


def ink_of(piece: str, event: Round) -> str:
    spans = [span for row in tree(Scene(drawn(first=event)), 80, 16) for span in row]
    place = next(place for place, (text, _) in enumerate(spans) if text.split()[1:] == [piece])
    return next(ink for text, ink in spans[place + 3 :] if "%" in text)


def bars(state: RunState) -> list[int]:
    return [row.count("█") for row in lines(tree(Scene(state), 80, 16))[2:4]]


def told(state: RunState, cursor: int) -> dict[str, str]:
    rows = [line[2:-2] for line in lines(inspect(Scene(state, cursor=cursor), 240, 12))[1:-1]]
    return {row[:8].strip(): " ".join(row[8:].split()) for row in rows if row[:8].strip()}


def test_the_first_line_says_verifier_drafting_and_shape() -> None:
    assert "traversal, delayed (2, 1, 2)" in lines(status(Scene(drawn()), 160, 1))[0]
    assert "traversal (2, 1, 2)" in lines(status(Scene(drawn()), 120, 1))[0]
    assert "traversal→khisti, delayed" in lines(status(Scene(drawn(), pending={"verifier": 6.0}), 160, 1))[0]


def test_turns_of_verifier_drafting_and_shape_are_followed() -> None:
    turns = [
        Knob(method="delayed", round=1, name=name, old=0, new=new, source="user")
        for name, new in (("verifier", 5.0), ("drafting", 1.0), ("rollouts", 3.0))
    ]
    assert drawing_words(drawn(*turns))[0] == "specinfer, iid (3, 0, 3)"


def test_methods_that_draw_no_trees_name_no_verifier_but_one_that_is_not_the_usual() -> None:
    coupled = state_of([sampled_run(), sampled_round(0)])
    assert drawing_words(coupled) == ()
    assert drawing_words(structs.replace(drawn(), chosen="ar")) == ()
    assert drawing_words(state_of([structs.replace(sampled_run(), verifier="nss")])) == ("nss",)
    hostile = state_of([structs.replace(sampled_run(), verifier=HOSTILE)])
    assert drawing_words(hostile)[0].isprintable()


def test_the_card_and_the_knobs_say_them_too() -> None:
    assert "traversal" in lines(cards.cards(Scene(drawn()), 80, 3))[1]
    assert "(2, 1, 2)" in lines(cards.cards(Scene(drawn()), 80, 3))[2]
    row = lines(sliders.knobs(Scene(drawn()), 120, 5))[2]
    assert "verifier V traversal  drafting D delayed  a path of 1 draw, then 2 paths of 2 draws" in row


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((2, 1, 3), "a path of 1 draw, then 2 paths of 3 draws from its end"),
        ((3, 0, 4), "3 paths of 4 draws from the root"),
        ((1, 2, 2), "one path of 4 draws"),
        ((4, 5, 0), "one path of 5 draws"),
        ((0, 1, 0), "one path of 1 draw"),
    ],
)
def test_a_shape_is_told_in_plain_words(shape: tuple[int, int, int], words: str) -> None:
    assert shape_words(shape) == words


def test_each_drawn_node_has_its_count_its_probability_and_its_chance_to_be_kept() -> None:
    assert label_of("-t", drawn()) == ["x2", "50%", "62%"]
    assert label_of("the", drawn()) == ["10%", "4%"]
    assert lines(tree(Scene(drawn()), 80, 16))[1].split()[-4:-1] == ["%:", "prob.,", "kept"]


def test_where_columns_are_narrow_a_drawn_node_keeps_its_count_and_its_chance_to_be_kept() -> None:
    assert label_of("-t", drawn(), 46) == ["x2", "62%"]
    assert lines(tree(Scene(drawn()), 46, 16))[1].split()[-3:-1] == ["%:", "kept"]


def test_long_names_are_cut_before_counts_and_chances() -> None:
    for width in range(38, 120):
        nodes = range(6)
        deep = structs.replace(
            drawn_round(0),
            tokens=list(nodes),
            parents=[node - 1 for node in nodes],
            logprobs=[math.log(0.5)] * 6,
            pieces=[" extraordinary"] * 6,
            drawn=[1, *[2] * 5],
            verification=Verification(surprise=0, surprise_variance=1, top1=0, top1_variance=1, reach=[0.62] * 6),
        )
        page = "\n".join(lines(tree(Scene(drawn(first=deep)), width, 16)))
        assert len(re.findall(r"[●○] ext[a-z…]+ +x2( 50%)? 62%", page)) == 5


def test_the_colour_is_the_chance_to_be_kept_and_so_is_the_bar_at_the_end_of_a_row() -> None:
    assert [ink_of(piece, drawn_round(0)) for piece in ("a", "while", "the")] == ["good", "second", "dim"]
    assert bars(drawn()) == [2, 0]


def test_a_round_that_does_not_tell_its_chances_shows_what_was_drawn() -> None:
    state = drawn(first=drawn_round(0, told=False))
    assert label_of("-t", state) == ["x2", "50%"]
    page = " ".join(" ".join(lines(tree(Scene(state), 80, 18))).replace("│", "").split())
    assert "x2: the token was sampled twice" in page
    assert "kept" not in page


def test_signs_that_are_not_there_are_not_explained() -> None:
    pages = (" ".join(lines(tree(Scene(drawn()), width, 18))).replace("│", "") for width in (46, 80))
    narrow, wide = (" ".join(page.split()) for page in pages)
    assert ["prob.:" in page for page in (narrow, wide)] == [False, True]
    assert ["kept, colour: how" in narrow, "kept, bar, colour:" in wide] == [True, True]


def test_a_shape_that_the_selector_chose_is_called_its_choice() -> None:
    chose = Knob(method="delayed", round=0, name="drafting", old=2, new=3, source="user")
    state = state_of([delayed_run(), chose, structs.replace(drawn_round(0), shape=(4, 0, 3))])
    told = shape_sentence(state, state.lane.past[0])
    assert told == "the selector chose (4, 0, 3): 4 paths of 3 draws from the root"


def test_an_accepted_token_tells_how_often_it_was_drawn_and_what_the_verifier_did() -> None:
    facts = told(drawn(), 1)
    assert facts["draft"] == "drew it 2 times in 2 draws here · each draw picks it with chance 50%"
    assert told(drawn(), 0)["draft"] == "drew it in its only draw here · each draw picks it with chance 60%"
    assert facts["verify"] == (
        "traversal kept it: 62% likely, given this tree · keeps one of 2 such draws 75% of the time; "
        "no verifier could do so more than 79% · L1 distance of draft and target 0.70: 0 same, 2 disjoint"
    )
    assert facts["knobs"].startswith("(2, 1, 2): a path of 1 draw")


def test_a_token_of_the_targets_own_tells_what_was_refused_in_its_place() -> None:
    facts = told(drawn(), 2)
    assert facts["draft"] == "this token is not among the 2 tokens drawn here"
    assert facts["verify"].startswith(
        "traversal kept no guess; this token is sampled from the rest of the target's distribution"
    )
    assert facts["lost"] == "while 30% · the 10%"


def test_a_token_after_the_last_draw_is_the_targets_alone() -> None:
    whole = structs.replace(drawn_round(0), accepted=[1, 2, 3], committed=[11, 13, 14, 100])
    facts = told(drawn(first=whole), 3)
    assert facts["draft"] == "drew nothing here: the tree ends before it"
    assert facts["verify"] == "nothing to verify here: the target alone sampled this token"


def test_the_verifier_of_a_round_is_the_one_that_was_in_force_then() -> None:
    turn = Knob(method="delayed", round=1, name="verifier", old=7, new=5, source="user")
    state = drawn(turn, drawn_round(1))
    assert [told(state, cursor)["verify"].split()[0] for cursor in (1, 4)] == ["traversal", "specinfer"]


def test_a_verifier_that_judges_whole_paths_has_no_acceptance_of_one_node() -> None:
    event = drawn_round(0)
    assert event.verification is not None
    path = [structs.replace(draws, acceptance=None) for draws in event.verification.path]
    event = structs.replace(event, verification=structs.replace(event.verification, path=path))
    assert "no verifier could do so more than 79% of the time" in told(drawn(first=event), 1)["verify"]
    assert "75%" not in told(drawn(first=event), 1)["verify"]


def test_a_recording_that_claims_nonsense_is_drawn_all_the_same() -> None:
    event = drawn_round(0)
    assert event.verification is not None
    wild = structs.replace(event.verification, predicted_tokens=1e308, reach=[math.nan, 9.0], path=[])
    claims = structs.replace(event, shape=(0, 2**53, 2**53), drawn=[2**53], verification=wild)
    for width, height in ((1, 1), (30, 8), (46, 20), (120, 30)):
        assert len(tree(Scene(drawn(first=claims)), width, height)) == height
        assert len(inspect(Scene(drawn(first=claims), cursor=1), width, height)) == height


def test_greedy_and_coupled_trees_are_as_before() -> None:
    for begins, event in ((sampled_run(), sampled_round(0)), (run(), sampled_round(0))):
        page = " ".join(lines(tree(Scene(state_of([begins, event, plain_round("ar", 0)])), 92, 16)))
        assert "kept" not in page
        assert "drawn twice" not in page


test_golden = golden(
    {
        "the tree says its shape what was expected and what the columns mean": lambda: (
            tree(Scene(drawn()), 80, 18),
            tree(Scene(drawn()), 46, 10),
        ),
    }
)
