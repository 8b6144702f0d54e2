"""Tests of the text panel: meaning of its inks, cursor, paging, loading and failure."""

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from textual.theme import BUILTIN_THEMES

from decoder.events import Event
from dynatui.render.ink import Rows
from dynatui.render.palette import palette
from dynatui.render.scene import HEATS, Heat, Scene
from dynatui.render.text import HOT, TextPanel, inks, legend, time_edges
from dynatui.state.run_state import Failure, Loading, RunState
from dynatui.state.tokens import Token
from tests.dynatui.render.extreme_scenes import SIZES, is_drawn, scenes
from tests.dynatui.render.golden import golden
from tests.dynatui.scripted_runs import lines, plain_round, run, running, state_of, text_of, tree_round


def long_run(rounds: int = 60) -> RunState:
    told = (
        structs.replace(tree_round(n), text=f" at{n} b{n}" + ("\n" if n % 10 == 9 else f" c{n}")) for n in range(rounds)
    )
    return state_of(
        [
            run(),
            *(
                structs.replace(event, pieces=["", f" at{event.round}", "", f" b{event.round}", "", ""])
                for event in told
            ),
        ]
    )


def chosen(rows: Rows) -> list[str]:
    return [text for row in rows for text, ink in row if ink == "caret"]


def test_each_origin_has_its_own_ink() -> None:
    row = TextPanel()(running(), 60, 6)[1]
    assert [span for span in row if span[1] in ("prompt", "accepted", "bonus")][:5] == [
        ("Once", "prompt"),
        ("upon", "prompt"),
        ("at", "accepted"),
        ("a", "bonus"),
        ("time", "bonus"),
    ]


def test_the_newest_text_is_always_in_view() -> None:
    panel, records = TextPanel(), [run()]
    for number in range(40):
        state = state_of([*records, *(tree_round(n, f" word{n}") for n in range(number))])
        page = lines(panel(Scene(state), 30, 7))
        assert any(f"word{number - 1}" in line for line in page) or number == 0


def test_a_full_page_moves_up_by_more_than_a_line() -> None:
    panel = TextPanel()
    tops = []
    for number in range(30):
        state = state_of([run(), *(tree_round(n) for n in range(number))])
        tops.append(lines(panel(Scene(state), 40, 10))[2])
    assert 1 < len(set(tops)) < 8


def test_the_same_text_at_another_width_is_wrapped_anew() -> None:
    panel, scene = TextPanel(), running()
    panel(scene, 60, 8)
    assert lines(panel(scene, 30, 8)) == lines(TextPanel()(scene, 30, 8))


@pytest.mark.parametrize("height", [6, 7, 12])
def test_of_a_long_failure_the_beginning_and_the_keys_that_help_stay(height: int) -> None:
    scene = Scene(structs.replace(RunState(), failure=Failure(f"no model at {'/nowhere' * 200}; give a folder", 3)))
    rows = lines(TextPanel()(scene, 70, height))
    assert "no model at" in rows[1]
    assert "… panel 8 shows the whole message" in " ".join(rows)
    assert "R tries again" in rows[-2]


def test_heat_inks_what_the_draft_gave_little() -> None:
    rows = TextPanel()(Scene(running().state, heat="probability"), 60, 6)
    assert {("t", "heat3"), ("a", "bonus")} <= {span for row in rows[1:] for span in row}


def test_the_cursor_is_on_its_token() -> None:
    state = long_run()
    for cursor in (0, 1, 40, len(state.lane.tokens) - 1):
        rows = TextPanel()(Scene(state, cursor=cursor), 60, 8)
        assert "".join(chosen(rows)).strip() == (state.lane.tokens[cursor].text.strip() or "⏎")


def test_the_view_follows_the_cursor_and_stays_while_it_is_in_view() -> None:
    panel, state = TextPanel(), long_run()
    tops = list[str]()
    for cursor in range(len(state.lane.tokens)):
        rows = panel(Scene(state, cursor=cursor), 50, 12)
        assert chosen(rows)
        tops.append(lines(rows)[2])
    assert 1 < len(set(tops)) < len(state.lane.tokens) / 20


def test_without_a_cursor_the_view_is_at_the_pen_again() -> None:
    panel, state = TextPanel(), long_run()
    panel(Scene(state, cursor=0), 50, 12)
    assert any("▌" in line for line in lines(panel(Scene(state), 50, 12)))


def test_tokens_that_are_not_to_be_seen_have_a_sign_under_the_cursor() -> None:
    event = structs.replace(tree_round(0), pieces=["", "", "", "\n", "", ""], text="\n end")
    state = state_of([run(), event])
    signs = [chosen(TextPanel()(Scene(state, cursor=cursor), 40, 6)) for cursor in range(3)]
    assert signs == [["∅"], ["⏎"], [" end"]]


def test_the_sign_is_in_view_at_the_end_of_a_full_line() -> None:
    event = structs.replace(tree_round(0), pieces=["", " abcdef", "", "\n", "", ""], text=" abcdef\nx")
    rows = TextPanel()(Scene(state_of([run(prompt="Once"), event]), cursor=1), 15, 6)
    assert lines(rows)[1] == "│ Once abcde⏎ │"


def test_a_click_finds_the_token_that_is_drawn_there() -> None:
    panel, state = TextPanel(), long_run()
    rows = panel(Scene(state), 50, 12)
    for y, row in enumerate(lines(rows)):
        for x in range(50):
            index = panel.token_at(x, y)
            if index is not None:
                assert row[x] in f"{state.lane.tokens[index].text} "
                assert chosen(panel(Scene(state, cursor=index), 50, 12))
    assert panel.token_at(0, 0) is None
    assert panel.token_at(500, 500) is None


def test_the_prompt_stays_in_view_above_a_text_that_has_left_it_behind() -> None:
    panel, state = TextPanel(), long_run()
    assert lines(panel(Scene(state), 50, 12))[1] == f"│ {'prompt: Once upon':46} │"
    assert panel.token_at(12, 1) is None
    assert not any("prompt:" in line for line in lines(panel(Scene(running().state), 50, 12)))
    assert not any("prompt:" in line for line in lines(panel(Scene(state), 50, 7)))


def test_of_a_long_prompt_both_ends_stay_in_view() -> None:
    asked = "Given this " + "very " * 100 + "long\ncontext,  答えはどこですか where is it?"
    records: list[Event] = [run(prompt=asked), *(tree_round(n, f" word{n}") for n in range(60))]
    row = lines(TextPanel()(Scene(state_of(records)), 50, 12))[1]
    assert row == "│ prompt: Given this very ve…ですか where is it? │"


def test_a_click_on_the_prompt_finds_no_token() -> None:
    panel = TextPanel()
    panel(running(), 60, 6)
    assert panel.token_at(3, 1) is None
    assert panel.token_at(12, 1) == 0


def test_the_cursor_moves_to_the_line_below_and_back() -> None:
    panel, state = TextPanel(), long_run()
    panel(Scene(state), 50, 12)
    below = panel.moved(30, 1)
    assert below > 32
    assert abs(panel.moved(below, -1) - 30) <= 1
    assert panel.moved(0, -1) == 0
    assert panel.moved(30, 10**6) > len(state.lane.tokens) - 15


def test_the_cursor_passes_empty_lines() -> None:
    panel = TextPanel()
    event = structs.replace(tree_round(0), pieces=["", "a", "", "\n\n\n", "", ""], text="a\n\n\nb")
    panel(Scene(state_of([run(prompt=""), event])), 40, 9)
    assert [panel.moved(0, 1), panel.moved(0, 9), panel.moved(2, -9)] == [1, 2, 0]


def test_on_a_shorter_line_the_cursor_goes_to_its_end() -> None:
    panel = TextPanel()
    events = [
        structs.replace(tree_round(number), pieces=["", text[0], "", text[1], "", ""], text="".join(text))
        for number, text in enumerate([("one", " two", " three\n"), ("a", " b", "\n"), ("four", " five", " six")])
    ]
    panel(Scene(state_of([run(prompt=""), *events])), 40, 9)
    assert panel.moved(2, 1) == 5
    assert panel.moved(8, -1) == 5


def test_where_there_is_no_run_any_more_there_is_nothing_to_click() -> None:
    panel = TextPanel()
    panel(running(), 60, 6)
    panel(Scene(), 60, 6)
    assert {panel.token_at(x, y) for x in range(60) for y in range(6)} == {None}


def test_a_view_of_the_past_has_fewer_tokens_and_nothing_else_changes() -> None:
    panel, state = TextPanel(), long_run()
    panel(Scene(state), 50, 12)
    past = long_run(rounds=20)
    assert lines(panel(Scene(past), 50, 12)) == lines(TextPanel()(Scene(past), 50, 12))


def test_another_prompt_is_wrapped_anew() -> None:
    panel = TextPanel()
    panel(running(), 60, 8)
    assert "Twice" in lines(panel(Scene(state_of([run(prompt="Twice")])), 60, 8))[1]
    panel(Scene(state_of([run(prompt="Once"), tree_round(0)])), 60, 8)
    assert "Twice" in lines(panel(Scene(state_of([run(prompt="Twice"), tree_round(0)])), 60, 8))[1]


@settings(max_examples=60)
@given(st.lists(st.tuples(scenes(), SIZES), min_size=1, max_size=4))
def test_any_scene_fits_any_size_whatever_was_drawn_before(looks: list[tuple[Scene, tuple[int, int]]]) -> None:
    panel = TextPanel()
    for scene, size in looks:
        assert is_drawn(panel(scene, *size), scene, size)
        for index in (0, 3, 99):
            assert (
                0
                <= panel.moved(min(index, max(0, len(scene.state.lane.tokens) - 1)), 1)
                <= max(0, len(scene.state.lane.tokens))
            )
        assert panel.token_at(size[0] // 2, size[1] // 2) in {None, *range(len(scene.state.lane.tokens))}


def token(probability: float | None = None, spent_s: float = 0.01, number: int = 0) -> Token:
    return Token("x", "bonus" if probability is None else "accepted", number, 1, 1, probability, spent_s)


def test_what_the_draft_gave_little_is_hot() -> None:
    ink_of = inks("probability", ())
    assert [ink_of(token(value)) for value in (1.0, 0.7, 0.5, 0.3, 0.0)] == list(HOT)
    assert ink_of(token(0.8)) == HOT[0]
    assert ink_of(token(0.2)) == HOT[3]


def test_the_targets_own_tokens_have_no_probability_and_an_ink_of_their_own() -> None:
    assert inks("probability", ())(token()) == "bonus"


def test_what_took_twice_the_median_is_hot() -> None:
    tokens = [token(spent_s=value) for value in (0.004, 0.007, 0.010, 0.015, 0.030)]
    assert [inks("time", tokens)(each) for each in tokens] == list(HOT)


def test_tokens_of_one_round_share_an_ink_that_the_next_round_has_not() -> None:
    ink_of = inks("round", ())
    assert ink_of(token(0.5, number=4)) == ink_of(token(number=4)) == ink_of(token(number=6))
    assert ink_of(token(number=4)) != ink_of(token(number=5))


def test_every_legend_names_the_numbers_that_the_inks_follow() -> None:
    scene = running()
    titles = {heat: text_of(legend(Scene(scene.state, heat=heat), 90)) for heat in HEATS}
    assert titles["origin"] == "Text by dynatree ─ drafted and accepted · target's own · prompt"
    assert titles["probability"] == "Text ─ draft gave it 80-100% · 60-80 · 40-60 · 20-40 · 0-20 · target"
    assert titles["round"] == "Text ─ one round · the next · 3.0 tokens each, maximum 3"
    assert titles["time"] == "Text ─ ms per token: to 3.3 · to 5.3 · to 8.3 · to 13 · slower"


@pytest.mark.parametrize("heat", HEATS)
@pytest.mark.parametrize("room", [38, 70, 120])
def test_a_legend_fits_and_keeps_every_class(heat: Heat, room: int) -> None:
    row = legend(Scene(running().state, heat=heat), room)
    assert len(text_of(row)) <= room
    classes = {"origin": 3, "probability": 6, "round": 2, "time": 5}[heat]
    assert len({ink for _, ink in row} - {"title", "dim"}) == classes


def test_without_a_draft_and_without_rounds_there_is_a_legend_too() -> None:
    states = (state_of([run(("ar",))]), state_of([run(("ar",)), plain_round("ar", 0)]))
    assert all(text_of(legend(Scene(state, heat=heat), 70)).startswith("Text") for state in states for heat in HEATS)


@given(st.lists(st.floats(allow_nan=True), max_size=5))
def test_any_times_have_edges(times: list[float]) -> None:
    tokens = [token(spent_s=value) for value in times]
    assert len(time_edges(tokens)) == len(HOT) - 1
    assert all(inks("time", tokens)(each) in HOT for each in tokens)


def test_a_median_that_hardly_moves_recolours_nothing() -> None:
    assert time_edges([token(spent_s=0.01001)]) == time_edges([token(spent_s=0.01004)])


def test_every_class_differs_without_colours() -> None:
    variables = BUILTIN_THEMES["textual-dark"].to_color_system().generate()
    styles = palette(variables, color=False)
    assert len({str(styles[ink]) for ink in (*HOT, "bonus", "prompt", "caret")}) == len(HOT) + 3
    assert str(styles["band"]) != str(styles["plain"])
    assert len(HEATS) == len(get_args(Heat))


test_golden = golden(
    {
        "before the first run the panel says what is loading": lambda: TextPanel()(
            Scene(
                state_of(
                    [
                        Loading("importing torch", at_s=0.5),
                        Loading("loading target x", at_s=3.75),
                        Loading("loading target x", "20 % of its weights", 3.75),
                        Loading("loading target x", "60 % of its weights", 3.75),
                    ]
                ),
                waited_s=7.4,
            ),
            70,
            12,
        ),
        "a failure says what to do": lambda: TextPanel()(
            Scene(structs.replace(RunState(), failure=Failure("no model at /nowhere; give a folder", 3))), 70, 12
        ),
        "a round is one band with its gaps": lambda: TextPanel()(Scene(running().state, heat="round"), 60, 6),
    }
)
