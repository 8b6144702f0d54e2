"""Tests of the drawer with sliders of all knobs, and of the value that a click on a slider sets."""

import re
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from decoder.events import Knob, Limit
from decoder.knobs import KnobName
from decoder.methods.auto import Auto
from decoder.methods.dynatree import PRESETS, DynaTree
from decoder.run.config import RunConfig
from dynatui.knobs import info, owner, rules_in_force, rules_of
from dynatui.render import cards, drawer, sliders
from dynatui.render.scene import Scene
from dynatui.render.words import limited, limits, moved_back
from dynatui.state.ab_comparison import Pin
from dynatui.state.run_state import RunState
from tests.dynatui.render.extreme_scenes import SCENES
from tests.dynatui.render.golden import golden
from tests.dynatui.scripted_runs import lines, plain_round, run, running, state_of, text_of, tree_round

FULL = {
    "d0": 5.0,
    "d_max": 8,
    "branching": [1, 2, 3],
    "tau_h": 0.9,
    "tau_l": 0.4,
    "rho_stop": 0.1,
    "rho_deep": 0.5,
    "tau": 0.05,
    "n_max": 256,
    "selection": "best",
    "history": True,
    "window": 3,
    "target_acceptance": 0.7,
}


METHODS: dict[str, dict[str, Any]] = {
    "dynatree": FULL,
    "auto": {name: value for name, value in FULL.items() if name not in ("n_max", "selection")},
    "linear": {"k": 5},
    "fixed": {"depth": 5, "branching": 2, "tau": 0.05, "n_max": 256},
    "ar": {},
}


def raced(*turns: tuple[KnobName, float], watched: str = "dynatree") -> RunState:
    begins = structs.replace(run(), methods=METHODS)
    told = [Knob(method=watched, round=1, name=name, old=0, new=value, source="user") for name, value in turns]
    return structs.replace(state_of([begins, tree_round(0), *told]), chosen=watched)


def row_of(state: RunState, name: KnobName, width: int = 120) -> str:
    page = lines(drawer.drawer(Scene(state, slider="tau_h"), width, 20))
    return page[1 + drawer.listed_knobs(state).index(name)]


def within(name: KnobName, row: str, x: int) -> float:
    track = next(found for found in re.finditer("[─·●○┼]+", row) if found.start() <= x < found.end())
    span = {"n_max": 1023.0, "d0": 6.0, "sharpness": 3.5}.get(name, 1.0 if info(name).step < 1 else 31.0)
    return (info(name).step + span / max(1, len(track.group()) - 1)) / 2 + 1e-6


@pytest.mark.parametrize(
    ("watched", "knobs"),
    [
        ("dynatree", tuple(DynaTree().ends())),
        ("auto", tuple(Auto().ends())),
        ("linear", ("k",)),
        ("fixed", ("n_max", "fixed_depth", "fixed_branching", "fixed_tau")),
        ("ar", ()),
    ],
)
def test_the_drawer_has_a_slider_for_every_knob_of_the_watched_method_and_for_what_all_share(
    watched: str, knobs: tuple[KnobName, ...]
) -> None:
    state = raced(watched=watched)
    assert drawer.listed_knobs(state) == (*knobs, "temperature", "top_p")
    assert f"All knobs of {watched}" in lines(drawer.drawer(Scene(state), 100, 20))[0]


def test_a_method_without_knobs_says_how_to_watch_another() -> None:
    page = lines(drawer.drawer(Scene(raced(watched="ar")), 60, 7))
    assert [row.split()[1] for row in page[1:3]] == ["▸", "top-p"]
    assert "ar has no other knobs; w watches another method" in page[3]
    assert "ar has no knobs; w watches another method" in lines(sliders.knobs(Scene(raced(watched="ar")), 60, 5))[1]


def test_a_slider_says_what_it_is_in_force_where_and_how_far_it_goes() -> None:
    row = row_of(raced(("n_max", 128.0)), "n_max")
    for expected in ("N_max", " 128 ", "1 to 1024", "most guesses a round", "┼"):
        assert expected in row, expected
    assert " best " in row_of(raced(), "selection")
    assert " on " in row_of(raced(), "history")


@pytest.mark.parametrize("name", PRESETS)
def test_the_titles_of_knobs_name_the_preset_in_force(name: str) -> None:
    begins = structs.replace(run(), methods={"dynatree": asdict(PRESETS[name])})
    turn = Knob(method="dynatree", round=1, name="n_max", old=0, new=99, source="user")
    started, turned = Scene(state_of([begins])), Scene(state_of([begins, turn]))
    for panel in (sliders.knobs, drawer.drawer):
        assert f"nobs of dynatree (preset {name}) ─" in lines(panel(started, 100, 30))[0]
        assert "nobs of dynatree ─" in lines(panel(turned, 100, 30))[0]


@pytest.mark.parametrize(
    ("watched", "expected"),
    [
        ("dynatree", ["τh sure from [ ]", "τl unsure below { }", "D0 base depth - =", "history h on"]),
        ("auto", ["τh sure from [ ]", "τl unsure below { }", "D0 base depth - =", "history h on"]),
        ("linear", ["K chain length - ="]),
        ("fixed", ["B guesses a node [ ]", "τ path at least { }", "D depth - ="]),
    ],
)
def test_the_row_of_sliders_says_what_the_keys_do_to_the_watched_method(watched: str, expected: list[str]) -> None:
    page = lines(sliders.knobs(Scene(raced(watched=watched)), 140, 5))
    assert f"Knobs of {watched}" in page[0]
    for words in expected:
        assert words in page[1]


def test_bounds_follow_the_other_knobs() -> None:
    assert "0.41 to 1" in row_of(raced(), "tau_h")
    assert "0 to 0.3" in row_of(raced(("rho_deep", 0.3)), "rho_stop")
    assert "1 to 11" in row_of(raced(("d_max", 12.0)), "d0")


def test_typed_digits_stand_at_the_chosen_slider() -> None:
    page = lines(drawer.drawer(Scene(raced(), slider="rho_stop", typed="0.7"), 120, 20))
    assert "▸ rho_stop" in next(row for row in page if "0.7_ " in row)
    assert any("type a value: 0.7_  enter sets it" in row for row in page)


def test_the_chosen_slider_explains_itself_even_without_a_column_for_it() -> None:
    assert "less probable paths end" in lines(drawer.drawer(Scene(raced(), slider="rho_stop"), 60, 8))[-2]


@pytest.mark.parametrize("name", ["tau_h", "rho_stop", "selection"])
def test_the_drawer_scrolls_to_the_chosen_slider(name: KnobName) -> None:
    for height in range(3, 21):
        page = lines(drawer.drawer(Scene(raced(), slider=name), 80, height))
        assert any(f"▸ {info(name).symbol} " in row for row in page)


def test_in_a_narrow_terminal_the_meaning_gives_way_first_and_the_bounds_last() -> None:
    wide, tabbed, narrow = (row_of(raced(), "n_max", width) for width in (120, 80, 44))
    assert "most guesses" in wide
    assert "most guesses" not in tabbed
    assert "1 to 1024" in tabbed
    assert "1 to 1024" not in narrow
    assert "256" in narrow


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 13), st.integers(70, 200), st.integers(3, 24), st.floats(0, 1), st.data())
def test_a_click_where_a_knob_is_drawn_asks_for_its_value(
    place: int, width: int, height: int, share: float, data: st.DataObject
) -> None:
    state = raced()
    name = drawer.listed_knobs(state)[place]
    rules = rules_in_force(state)
    assert rules is not None
    low, high = rules.ends()[name]
    value = low + share * (high - low)
    value = float(round(value)) if info(name).integer else value
    scene = Scene(state, pending={name: value}, slider=name)
    rows = lines(drawer.drawer(scene, width, height))
    y = next(y for y, row in enumerate(rows) if f"▸ {info(name).symbol} " in row)
    x = rows[y].index("○")
    found = drawer.hit(scene, width, height, x, y)
    assert found is not None
    assert found[0] == name
    assert abs(found[1] - value) <= within(name, rows[y], x)
    beside = data.draw(st.sampled_from([0, 1, width - 1, width + 5]))
    assert drawer.hit(scene, width, height, beside, y) is None
    assert drawer.hit(scene, width, height, x, height + 1) is None


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(["tau_h", "tau_l", "d0"]), st.integers(60, 200), st.integers(1, 8), st.floats(0.01, 1))
def test_a_click_on_a_slider_in_the_row_asks_for_what_is_drawn_there(
    name: KnobName, width: int, height: int, share: float
) -> None:
    value = 1 + 6 * share if name == "d0" else share
    scene = replace(running(), pending={name: value}, pinned=Pin.of(running().state, "dynatree"))
    rows = lines(sliders.knobs(scene, width, height))
    y = next(y for y, row in enumerate(rows) if "○" in row)
    x = rows[y].index("○")
    found = sliders.hit(scene, width, height, x, y)
    assert found is not None
    assert found[0] == name
    assert abs(found[1] - value) <= within(name, rows[y], x)


def test_a_click_on_the_switch_turns_history_off_and_on_again() -> None:
    row = lines(sliders.knobs(running(), 120, 4))[1]
    x = row.index("history")
    assert sliders.hit(running(), 120, 4, x, 1) == ("history", 0.0)
    asked = replace(running(), pending={"history": 0.0})
    assert sliders.hit(asked, 120, 4, x, 1) == ("history", 1.0)
    assert sliders.hit(running(), 120, 4, x, 2) is None


def test_without_knobs_a_click_asks_for_nothing() -> None:
    scene = Scene(state_of([run(("ar",)), plain_round("ar", 0)]))
    assert all(sliders.hit(scene, 80, 4, x, 1) is None for x in range(80))
    assert all(drawer.hit(scene, 80, 9, x, 3) is None for x in range(80))
    assert all(drawer.hit(Scene(), 80, 9, x, 1) is None for x in range(80))


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(list(SCENES)),
    st.integers(1, 200),
    st.integers(1, 40),
    st.integers(-3, 210),
    st.integers(-3, 45),
)
def test_a_click_anywhere_in_any_scene_is_harmless(stage: str, width: int, height: int, x: int, y: int) -> None:
    scene = SCENES[stage]
    for hit in (sliders.hit, drawer.hit):
        found = hit(scene, width, height, x, y)
        assert found is None or RunConfig().turned(*found, owner(found[0], rules_of(scene.state.watched) or "dynatree"))


def test_the_last_move_of_history_is_explained_with_its_numbers() -> None:
    moved = Knob(method="dynatree", round=3, name="d0", old=5.4, new=5.6, source="history")
    also = Knob(method="dynatree", round=3, name="tau_h", old=0.9, new=0.88, source="history")
    state = state_of([run(), *(tree_round(number) for number in range(3)), moved, also])
    told = text_of(sliders.history_line(state.lane, 160))
    assert told.startswith("history: D0 5 → 6: depth acceptance 0.67 < 0.70 over 3 rounds (round 4); now 0.67 < 0.70")
    assert (
        text_of(sliders.history_line(state.lane, 60)) == "history: D0 5 → 6: depth acceptance 0.67 < 0.70 over 3 rounds"
    )


def test_what_a_turn_has_brought_takes_the_place_of_history_or_rows_of_its_own() -> None:
    scene = replace(running(), pinned=Pin.of(running().state, "dynatree", by_hand=True))
    assert "too few rounds yet: A has 3, B has 0; each needs 10" in lines(sliders.knobs(scene, 120, 4))[2]
    page = lines(sliders.knobs(scene, 120, 5))
    assert "τh 0.9 → 0.8" in page[2]
    assert "A/B" in page[3]
    page = lines(sliders.knobs(scene, 120, 6))
    assert "history" in page[2]
    assert ("τh 0.9 → 0.8" in page[3], "A/B" in page[4]) == (True, True)


def moved(*news: float, old: float = 5.0, set_to: float = 2.0) -> RunState:
    told = [Knob(method="dynatree", round=1, name="d0", old=old, new=set_to, source="user")]
    for new in news:
        told.append(structs.replace(told[-1], round=2, old=told[-1].new, new=new, source="history"))
    return state_of([run(), tree_round(0), *told])


def test_history_that_moves_back_what_a_hand_has_set_is_named_with_the_key_that_holds_it() -> None:
    row = text_of(sliders.history_line(moved(2.6, 3.1).lane, 120))
    assert row.startswith("history moves D0 back: you set 2, now 3.1; depth acceptance 0.67 < 0.70")
    assert row.endswith("  H holds 2")
    assert "H holds 2" in text_of(sliders.history_line(moved(2.6).lane, 40))


def test_history_that_goes_on_where_the_hand_went_moves_nothing_back() -> None:
    assert moved_back(moved(1.4).lane) is None
    assert moved_back(moved(2.6, 1.4).lane) is None
    assert moved_back(moved().lane) is None


def test_the_limits_of_the_last_rounds_are_named_with_their_shares() -> None:
    names: list[Limit | None] = [None, "cost", "d0", "d0", "rho_stop"]
    rounds = [structs.replace(tree_round(number), limited_by=name) for number, name in enumerate(names)]
    state = state_of([run(), *rounds])
    assert limits(state.lane) == [("D0", 2 / 3), ("rho_stop", 1 / 3)]
    assert "limited by D0 67 %, rho_stop 33 % in the last 3 rounds" in lines(sliders.knobs(Scene(state), 120, 5))[0]
    assert "limited by D0 67 %, rho_stop 33 %" in lines(drawer.drawer(Scene(state), 120, 20))[0]
    assert "limited by D0 67 %" in "".join(lines(cards.cards(Scene(state), 150, 3)))


def test_a_recording_that_does_not_tell_limits_names_none() -> None:
    assert limited(state_of([run(), tree_round(0)]).lane) == ()


def test_of_a_recording_nobody_is_told_to_turn_knobs() -> None:
    for painter, height in ((sliders.knobs, 4), (drawer.drawer, 20)):
        assert "turn" in lines(painter(Scene(raced()), 120, height))[0]
        assert "as recorded" in lines(painter(replace(Scene(raced()), replaying=True), 120, height))[0]


test_golden = golden(
    {
        "a turn that is not in force yet is shown beside the value": lambda: drawer.drawer(
            Scene(raced(), pending={"rho_stop": 0.2}), 120, 20
        ),
    }
)
