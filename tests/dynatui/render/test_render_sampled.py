"""Tests of the panels for sampled runs: sampling settings, probabilities, and hf without comparison."""

import pytest
from msgspec import structs

from decoder.analysis.metrics import fold
from decoder.analysis.what_if import what_if
from decoder.events import Event, Round, Summary
from decoder.methods.dynatree import DynaTree
from dynatui.knobs import sampling_in_force
from dynatui.render import curves, drawer, versus
from dynatui.render.guide import GUIDE
from dynatui.render.headline import compared
from dynatui.render.inspect import inspect
from dynatui.render.prompts import prompts
from dynatui.render.race import race
from dynatui.render.scene import Scene
from dynatui.render.status import status
from dynatui.render.tree import tree
from dynatui.render.words import ALONE, WHY_ALONE, sampling_words
from dynatui.state.run_state import Prompt, RunState
from tests.dynatui.render.golden import golden
from tests.dynatui.scripted_runs import (
    lines,
    plain_round,
    run,
    sampled_round,
    sampled_run,
    state_of,
    text_of,
    tree_round,
    turned_temperature,
)


def drawn(*more: Event, methods: tuple[str, ...] = ("dynatree", "ar")) -> RunState:
    return state_of([sampled_run(methods), sampled_round(0), *more])


def burst(number: int, token: int = 50) -> Round:
    plain = structs.replace(plain_round("hf", number), draft_forwards=None, position=2 * number)
    return structs.replace(plain, committed=[token, token])


def with_hf(watched: str = "hf") -> RunState:
    events = [*(burst(number) for number in range(2)), *(plain_round("ar", number) for number in range(4))]
    return structs.replace(drawn(*events, methods=("dynatree", "ar", "hf")), chosen=watched)


def told(state: RunState, cursor: int, size: tuple[int, int] = (90, 10)) -> dict[str, str]:
    rows = [line[2:-2] for line in lines(inspect(Scene(state, cursor=cursor), *size))[1:-1]]
    return {row[:8].strip(): " ".join(row[8:].split()) for row in rows if row[:8].strip()}


def test_the_first_line_of_a_greedy_run_says_so_and_no_seed() -> None:
    line = lines(status(Scene(state_of([run(), tree_round(0)])), 140, 1))[0]
    assert "greedy" in line
    assert "seed" not in line


@pytest.mark.parametrize("replaying", [False, True])
def test_the_first_line_follows_the_turns_of_the_watched_method(*, replaying: bool) -> None:
    state = drawn(turned_temperature("dynatree", 1, 0.6, 0.0))
    scenes = [Scene(structs.replace(state, chosen=name), replaying=replaying) for name in ("dynatree", "ar")]
    first, second = (lines(status(scene, 140, 1))[0] for scene in scenes)
    assert "greedy" in first
    assert "T 0.6  top-p 0.9" in second


def test_a_turn_that_the_watched_method_has_not_come_to_is_shown_beside_what_is_in_force() -> None:
    assert sampling_words(drawn(), {"temperature": 0.7, "top_p": 1.0}) == ("T 0.6→0.7", "top-p 0.9→1", "seed 7")
    assert sampling_words(state_of([run()]), {"temperature": 0.5})[0] == "T 0→0.5"
    assert "T 0.6→0.7" in lines(status(Scene(drawn(), pending={"temperature": 0.7}), 140, 1))[0]


def test_without_room_for_both_the_tree_shows_the_chance_and_says_so() -> None:
    narrow = lines(tree(Scene(drawn()), 46, 14))
    greedy = lines(tree(Scene(state_of([run(), tree_round(0)])), 46, 14))
    assert narrow[2:5] == greedy[2:5]
    assert ("%: chance" in narrow[1], "%: prob." in greedy[1]) == (True, True)


def test_the_tree_explains_its_figures_where_there_is_room() -> None:
    roomy, tight = (" ".join(lines(tree(Scene(drawn()), 80, height))) for height in (16, 8))
    for words in ("prob.: how likely the draft finds it", "chance: how likely the target keeps it", "path: the same"):
        assert words in " ".join(roomy.replace("│", "").split())
        assert words not in " ".join(tight.replace("│", "").split())
    narrow = " ".join(lines(tree(Scene(drawn()), 42, 16)))
    assert "prob." not in narrow
    assert "chance: how" in narrow


def test_a_drawn_token_tells_both_probabilities_what_they_are_and_how_it_was_drawn() -> None:
    facts = told(drawn(), 1, (120, 10))
    assert facts["draft"] == "gave it 5%, 50% with this noise, its first choice of 2"
    assert facts["target"] == "sampled this at T 0.6 · all methods have the same noise"
    assert facts["noise"] == (
        "decided by seed 7 and the position in the text · chances are estimates by the draft, given this noise"
    )
    assert "noise" not in told(state_of([run(), tree_round(0)]), 1)


def test_a_token_of_a_sharpened_greedy_round_tells_both_probabilities_and_no_noise() -> None:
    facts = told(state_of([run(), sampled_round(0)]), 1, (120, 10))
    assert facts["draft"] == "gave it 5%, 50% estimated, its first choice of 2"
    assert "noise" not in facts


def test_what_was_drawn_before_a_turn_is_told_as_drawn_and_what_was_chosen_after_it_as_chosen() -> None:
    state = drawn(turned_temperature("dynatree", 1, 0.6, 0.0), tree_round(1))
    drew, chose = "sampled this at T 0.6 · all methods have the same noise", "chose exactly this"
    assert [told(state, cursor)["target"] for cursor in (2, 3)] == [drew, chose]
    assert told(state, 3)["draft"].startswith("gave it 60%, its first choice")
    warmer = state_of([run(), tree_round(0), turned_temperature("dynatree", 1, 0.0, 1.5), sampled_round(1)])
    assert [told(warmer, cursor)["target"] for cursor in (2, 3)] == [chose, drew.replace("0.6", "1.5")]


def test_the_text_is_coloured_by_what_the_draft_itself_gave() -> None:
    assert [token.probability for token in drawn().lane.tokens][:2] == pytest.approx([0.06, 0.05])


def test_hf_is_said_to_draw_alone_wherever_it_would_be_compared() -> None:
    state = with_hf()
    assert compared(state) == (((ALONE, "dim"),),)
    page = "\n".join(lines(race(Scene(state), 120, 20)))
    assert f"hf: {WHY_ALONE}" in page
    assert ALONE in next(row for row in page.split("\n")[8:] if "hf " in row)
    assert "hf: own noise, not compared with ar" in "\n".join(lines(race(Scene(state), 60, 20)))
    assert told(state, 0)["target"] == "sampled this at T 0.6 · noise differs from that of ar: not compared"
    shown = structs.replace(state, prompt=Prompt(1, 1))
    assert ALONE in "\n".join(lines(prompts(Scene(shown), 110, 10)))


def test_greedy_hf_is_compared_as_ever() -> None:
    state = state_of([run(("hf", "ar")), burst(0), plain_round("ar", 0)])
    assert ALONE not in "\n".join(lines(race(Scene(state), 100, 20)))
    assert text_of(compared(state)[0]) == "~ text differs from token 0"


@pytest.mark.parametrize("watched", ["dynatree", "ar"])
def test_the_drawer_has_temperature_and_top_p_of_the_watched_method(watched: str) -> None:
    state = structs.replace(drawn(turned_temperature("dynatree", 1, 0.6, 0.8)), chosen=watched)
    scene = Scene(state, slider="temperature", pending={} if watched == "dynatree" else {"temperature": 0.8})
    page = lines(drawer.drawer(scene, 120, 20))
    row = next(row for row in page if "▸ T " in row)
    assert "0 to 2" in row
    assert (" 0.8 " in row) if watched == "dynatree" else (" 0.6 →0.8" in row and row.index("●") < row.index("○"))
    assert (row.count("┼") == 1) == (watched == "dynatree"), "at the start of the run"
    assert "0.05 to 1" in next(row for row in page if " top-p " in row)


def test_a_click_on_the_temperature_asks_for_its_value() -> None:
    scene = Scene(drawn(), slider="temperature", pending={"temperature": 1.5})
    page = lines(drawer.drawer(scene, 120, 20))
    y = next(number for number, row in enumerate(page) if "▸ T " in row)
    found = drawer.hit(scene, 120, 20, page[y].index("○"), y)
    assert found is not None
    assert found[0] == "temperature"
    assert found[1] == pytest.approx(1.5, abs=0.06)


def test_a_recording_that_claims_an_impossible_temperature_has_no_sliders_for_it() -> None:
    state = state_of([structs.replace(sampled_run(), temperature=9.0), sampled_round(0)])
    assert sampling_in_force(state) is None
    assert "temperature" not in drawer.listed_knobs(state)
    assert "T 9" in lines(status(Scene(state), 140, 1))[0]


def test_a_turn_of_the_temperature_is_a_mark_on_the_curves() -> None:
    state = drawn(*(sampled_round(number) for number in (1, 2)), turned_temperature("dynatree", 3, 0.6, 0.7))
    state = state_of([sampled_run(), *(state.lane.past), turned_temperature("dynatree", 3, 0.6, 0.7)])
    assert [(mark.name, mark.old, mark.new) for mark in state.lane.marks] == [("temperature", 0.6, 0.7)]
    assert "▲T 0.6→0.7" in "\n".join(lines(curves.depth(Scene(state), 80, 12)))


def test_two_recordings_say_how_each_was_drawn() -> None:
    assert "T 0.6 top-p 0.9 seed 7" in text_of(versus.heading(0, "a.jsonl", drawn(), 140))
    assert "seed" not in text_of(versus.heading(0, "a.jsonl", state_of([run(), tree_round(0)]), 140))


def test_the_guide_explains_temperature_noise_and_chance() -> None:
    meanings = dict(GUIDE)
    assert "0 is greedy" in meanings["T, top-p"]
    assert "position and is the same for every method" in meanings["T, top-p"]
    assert "draft's estimate of the probability that the target takes this token" in meanings["Chance"]


def test_what_if_goes_by_the_chances_that_the_rules_went_by() -> None:
    rules = DynaTree(history=False)
    past = [sampled_round(number) for number in range(12)]
    found = what_if(past, rules)
    assert found is not None
    assert found == what_if([tree_round(number) for number in range(12)], rules)
    tenth = [structs.replace(event, logprobs=event.draft_logprobs) for event in past]
    assert found != what_if(tenth, rules)


def test_a_replayed_run_that_is_over_still_says_how_it_was_drawn() -> None:
    events: list[Event] = [sampled_run(), sampled_round(0), plain_round("ar", 0)]
    state = state_of([*events, Summary(methods=fold(events).figures())])
    assert "T 0.6  top-p 0.9  seed 7" in lines(status(Scene(state, replaying=True), 140, 1))[0]
    assert told(state, 0)["target"] == "sampled this at T 0.6, as did ar · all methods have the same noise"


test_golden = golden(
    {
        "the first line says how tokens are drawn": lambda: (
            status(Scene(drawn()), 140, 1),
            status(Scene(state_of([structs.replace(sampled_run(top_p=1.0), top_k=40)])), 140, 1),
            status(Scene(drawn()), 80, 1),
        ),
        "the tree shows what the draft gives a token beside its chance": lambda: tree(Scene(drawn()), 92, 14),
        "a method that is compared keeps its verdict beside hf": lambda: (
            compared(with_hf("dynatree")),
            race(Scene(with_hf("dynatree")), 100, 9),
            race(Scene(with_hf("dynatree")), 60, 9),
            race(Scene(structs.replace(with_hf("dynatree"), chosen="ar")), 60, 9),
        ),
    }
)
