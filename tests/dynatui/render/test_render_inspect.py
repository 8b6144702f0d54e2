"""Tests of the inspector, which explains how a token was chosen."""

import math

from hypothesis import given
from msgspec import structs

from decoder.append_only import SharedList
from decoder.events import Event, Knobs
from dynatui.render.inspect import inspect
from dynatui.render.scene import Scene
from dynatui.state.run_state import RunState
from tests.dynatui.render.extreme_scenes import SIZES, is_drawn, scenes
from tests.dynatui.render.golden import golden
from tests.dynatui.scripted_runs import lines, plain_round, run, running, state_of, story, tree_round


def told(state: RunState, cursor: int, size: tuple[int, int] = (76, 9)) -> dict[str, str]:
    rows = [line[2:-2] for line in lines(inspect(Scene(state, cursor=cursor), *size))[1:-1]]
    return {row[:8].strip(): " ".join(row[8:].split()) for row in rows if row[:8].strip()}


def test_a_guess_that_was_looked_up_is_none_of_the_draft_s() -> None:
    event = structs.replace(tree_round(0), origins=["root", "lookup", "draft", "draft", "draft", "draft"])
    facts = told(state_of([run(), event]), 0)
    assert "looked up in the text, accepted" in facts["token"]
    assert facts["draft"] == "found it in the text: 60%, its first choice of 2"
    assert "a guess of the draft, accepted" in told(state_of([run(), event]), 1)["token"]


def test_a_second_choice_says_what_the_draft_preferred() -> None:
    event = structs.replace(tree_round(0), accepted=[2], committed=[12, 5], text=" the x")
    assert told(state_of([run(), event]), 0)["draft"] == "gave it 30%, its choice 2 of 2 · preferred a 60%"


def test_an_only_guess_says_so() -> None:
    event = structs.replace(tree_round(0), accepted=[1, 3, 5], committed=[11, 13, 15, 7])
    assert told(state_of([run(), event]), 2)["draft"] == "gave it 10%, its only guess here"


def test_where_every_guess_lost_the_target_speaks() -> None:
    event = structs.replace(tree_round(0), accepted=[], committed=[7], text=" one")
    facts = told(state_of([run(), event]), 0)
    assert list(facts.values())[:2] == [
        "one the target's own · round 1 · nothing was accepted",
        "did not propose it: 2 guesses here, all wrong",
    ]
    assert facts["lost"] == "a 60% · the 30%"


def test_behind_the_last_guess_of_a_tree_there_was_none() -> None:
    event = structs.replace(tree_round(0), accepted=[1, 3, 5], committed=[11, 13, 15, 7])
    assert told(state_of([run(), event]), 3)["draft"] == "the tree ends before it: all guesses on the way were right"


def test_a_lost_root_of_a_method_that_drafts_its_root_is_named() -> None:
    event = structs.replace(tree_round(0), method="alg1", accepted=[], committed=[7], knobs=None, logprobs=[-1.0] * 6)
    facts = told(state_of([run(("alg1",)), event]), 0)
    assert facts["lost"] == "upon 37%"
    assert facts["knobs"] == "no τh, τl, D0 in this method"


def test_the_knobs_are_those_of_the_round_and_not_of_now() -> None:
    state = state_of(story())
    assert told(state, 0)["knobs"].startswith("τh 0.90")
    assert told(state, 17)["knobs"].startswith("τh 0.80")


def test_the_confidence_says_on_which_side_of_the_thresholds_it_is() -> None:
    sides = [
        told(state_of([run(), structs.replace(tree_round(0), knobs=Knobs(tau_h=high, tau_l=low, d0=5))]), 0)["knobs"]
        for high, low in ((0.6 - 1e-9, 0.4), (0.9, 0.4), (0.9, 0.7))
    ]
    assert [side.split(", ")[1] for side in sides] == [
        "over τh: 2 guesses",
        "between: 2 guesses",
        "under τl: 2 guesses",
    ]


def test_the_comparison_with_ar_knows_before_at_and_behind_the_difference() -> None:
    events: list[Event] = [run(), tree_round(0), *(plain_round("ar", number) for number in range(5))]
    state = state_of([*events, tree_round(1)])
    said = [told(state, cursor)["target"] for cursor in (1, 2, 3)]
    assert said == [
        "chose exactly this, as did ar",
        "chose exactly this, as did ar",
        "chose exactly this · ar has a different token here",
    ]
    assert told(state, 4)["target"] == "chose exactly this · not ar's text: first difference at token 3"
    assert told(state_of(events[:4]), 2)["target"] == "chose exactly this"
    assert told(state_of([run(("dynatree",)), tree_round(0)]), 1)["target"] == "chose exactly this"


def test_a_near_tie_is_called_one() -> None:
    state = state_of(story())
    assert state.summary is not None
    figures = {name: structs.replace(each, near_tie=True) for name, each in state.summary.items()}
    target = told(structs.replace(state, summary=figures), 3)["target"]
    assert target.endswith("ar has a different token here: a near tie")


def test_sampling_draws_instead_of_choosing() -> None:
    drawn = structs.replace(run(), temperature=0.8)
    assert told(state_of([drawn, tree_round(0)]), 0)["target"].startswith("sampled this at T 0.8")


def test_what_a_method_does_not_tell_is_not_made_up() -> None:
    hidden = structs.replace(plain_round("hf", 0), draft_forwards=None, draft_s=None, verify_s=None, commit_s=None)
    facts = told(state_of([run(("hf",)), hidden]), 0)
    assert facts["draft"] == "this method does not show its draft"
    assert facts["round"] == "20.0 ms"
    assert told(state_of([run(("ar",)), plain_round("ar", 0)]), 0)["draft"] == "guessed nothing in this round"


def test_with_little_room_the_first_questions_are_answered() -> None:
    state = running().state
    assert list(told(state, 4, (72, 7))) == ["token", "draft", "target", "knobs", "round"]
    small = told(state, 4, (76, 5))
    assert list(small) == ["token", "draft", "target"]
    assert told(state_of([run(), tree_round(0)]), 0, (72, 5))["target"] == "chose exactly this · lost: the 30%"


def test_what_is_cut_says_so() -> None:
    assert next(iter(told(running().state, 4, (30, 7)).values())) == "-t a guess of t…"


def test_the_index_is_that_among_all_generated_tokens() -> None:
    bursts = [
        structs.replace(plain_round("hf", number), draft_forwards=None, position=4 * number, committed=[1, 2, 3, 4])
        for number in range(3)
    ]
    assert "index 8 of 12 tokens" in lines(inspect(Scene(state_of([run(("hf",)), *bursts]), cursor=2), 76, 9))[0]


def test_a_token_whose_round_is_not_known_still_has_a_name() -> None:
    known = running().state
    state = structs.replace(known, lanes={"dynatree": structs.replace(known.lane, past=SharedList())})
    assert list(told(state, 0)) == ["token"]


def test_without_a_cursor_the_panel_says_what_it_is_for() -> None:
    assert "put the cursor on a token" in lines(inspect(Scene(), 76, 5))[1]


@given(scenes(), SIZES)
def test_any_scene_fits_any_size(scene: Scene, size: tuple[int, int]) -> None:
    assert is_drawn(inspect(scene, *size), scene, size)


test_golden = golden(
    {
        "an accepted guess tells its story": lambda: inspect(Scene(running().state, cursor=4), 76, 9),
        "with much room nothing is cut": lambda: inspect(Scene(running().state, cursor=4), 30, 24),
        "no probability is called nothing while it is something": lambda: math.log(0.004),
    }
)
