"""What the text's inks stand for, and the legends that say so."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.theme import BUILTIN_THEMES

from dynatui.render.heat import HOT, inks, legend, time_edges
from dynatui.render.palette import palette
from dynatui.render.scene import HEATS, Heat, Scene
from dynatui.state.tokens import Token
from tests.dynatui.scripted_runs import plain_round, run, running, state_of, text_of


def token(probability: float | None = None, spent_s: float = 0.01, number: int = 0) -> Token:
    """A token that took ten milliseconds unless told otherwise."""
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
    assert titles["probability"] == "Text ─ the draft gave it 80-100% · 60-80 · 40-60 · 20-40 · 0-20 · target's own"
    assert titles["round"] == "Text ─ one check by the target each: one round · the next · 3.0 tokens each, at most 3"
    assert titles["time"] == "Text ─ ms per token: to 3.3 · to 5.3 · to 8.3 · to 13 · slower · median 6.7"


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
