"""Keys of knobs in a live run: temperature, top-p, verifier, drafting, and the drawer with typed values."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import pytest
from textual.pilot import Pilot

from decoder.analysis.what_if import Grid, GridCell, WhatIf
from decoder.events import Knob
from decoder.knobs import KnobName
from decoder.methods.delayed import Delayed
from decoder.methods.dynatree import DynaTree
from decoder.run.config import RunConfig
from dynatui.keymap import KEYMAP
from dynatui.knobs import info
from dynatui.screen.app import DynaApp
from dynatui.session import View
from dynatui.state.run_state import Loading, Prompt, Record
from tests.dynatui.screen.shown_app import screen_text, shown, told
from tests.dynatui.screen.transcripts import transcripts
from tests.dynatui.scripted_runs import (
    ScriptedSource,
    delayed_run,
    drawn_round,
    plain_round,
    run,
    sampled_round,
    sampled_run,
    turned_temperature,
)
from tests.dynatui.turned_runs import rounds, turned

ALL = ("dynatree", "ar", "linear", "hf")
WARM = RunConfig(temperature=0.6, top_p=0.9)
T_UP, T_DOWN, P_DOWN, P_UP = "right_parenthesis", "left_parenthesis", "comma", "semicolon"
DRAWN: Sequence[Record] = (Prompt(1, 1), delayed_run(), drawn_round(0), plain_round("ar", 0))
LOADING = [Loading("importing torch")]
IN_FORCE: Mapping[KnobName, float] = {"tau_h": 0.8, "tau_l": 0.4, "d0": 6.0}
TYPED = {".5": 0.5, "0.55": 0.55, "1": 1.0, "0.5123": 0.512, "9": 1.0, "0": 0.41, "0..6": 0.6, "0.6.5": 0.65}


def racing(methods: Sequence[str] = ("dynatree", "ar"), rounds: int = 3) -> list[Record]:
    told = [event for number in range(rounds) for event in (sampled_round(number), plain_round("ar", number))]
    return [Prompt(1, 2), sampled_run(methods), *told]


racing_warm = partial(shown, racing(), config=WARM)


def drawing(rollouts: int = 2, temperature: float = 0.6) -> RunConfig:
    own = Delayed("specinfer", "delayed", rollouts, 1, 2)
    return RunConfig(("delayed", "ar"), temperature=temperature, delayed=own)


delayed = partial(shown, DRAWN, config=drawing())


@pytest.mark.parametrize("watched", [0, 3])
async def test_the_keys_turn_them_whatever_method_is_watched(watched: int) -> None:
    async with shown(racing(ALL), config=WARM) as (_, source, pilot):
        await pilot.press(*["w"] * watched, T_UP, T_DOWN, T_DOWN, P_DOWN, P_UP, P_UP)
        values = [("temperature", 0.65), ("temperature", 0.6), ("temperature", 0.55)]
        assert source.turns == [*values, ("top_p", 0.85), ("top_p", 0.9), ("top_p", 0.95)]
        assert (source.steering.config.sampling.temperature, source.steering.config.sampling.top_p) == (0.55, 0.95)


CELL = GridCell(20, 20, 3.0, 20, 9.0, 0.02)
QUICK, SLOW = replace(CELL, seconds=0.01), replace(CELL, seconds=0.03)
ESTIMATE = WhatIf(
    (
        Grid("tau_h", "d0", (0.8, 0.9), (4.0, 5.0), ((SLOW, QUICK), (CELL, CELL)), (1, 1)),
        Grid("tau_l", "d0", (0.3, 0.4), (4.0, 5.0), ((CELL, CELL), (CELL, CELL)), (1, 1)),
    ),
    20,
    CELL,
)


@pytest.mark.parametrize("history", [0.0, 1.0])
async def test_enter_turns_the_knobs_to_the_chosen_estimate(history: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dynatui.screen.scene_builder.what_if", lambda *_: ESTIMATE)
    config = RunConfig(dynatree=DynaTree(history=bool(history)))
    async with shown([run(), *rounds(range(3))], config=config) as (app, source, pilot):
        await pilot.press("6")
        await told(app, source, pilot, turned("d0", 3, 5, 5))  # the estimate is made anew
        assert "τh 0.80 with D0 5: 300 tokens/s" in screen_text(app)
        await pilot.press("down", "down", "up", "up", "enter")
        assert dict(source.turns) == {"tau_h": 0.8, **({"history": 0, "d0": 5} if history else {})}
        assert app.scene.note.startswith("τh 0.80 with D0 5 from the next round on")
        await pilot.press("down", "enter", *["down"] * 9, "enter")
        assert dict(source.turns)["d0"] == 4


async def test_without_an_estimate_in_tokens_per_second_enter_expands_the_panel() -> None:
    async with shown([run(), *rounds(range(3))]) as (app, source, pilot):
        await pilot.press("6", "up", "enter")
        assert (app.scene.maximised, source.turns) == (True, [])


@pytest.mark.parametrize("watched", [0, 1])
async def test_the_defaults_are_those_of_the_start_for_them_too(watched: int) -> None:
    async with shown(racing()) as (_, source, pilot):
        await pilot.press(*["w"] * watched, T_UP, T_UP, P_DOWN, "0")
        assert source.steering.config == source.steering.session.config
        await pilot.press("u")
        sampling = source.steering.config.sampling
        assert (sampling.temperature, sampling.top_p) == (0.1, 0.95), "the defaults are undone at once"


@pytest.mark.parametrize(
    ("keys", "rollouts", "verifier", "drafting"),
    [
        ("V", 2, "khisti", "delayed"),
        ("V V V", 2, "nss", "delayed"),
        ("V V V V V V V", 2, "specinfer", "delayed"),
        ("V V V", 1, "block", "delayed"),
        ("D", 2, "specinfer", "selector"),
        ("D D", 2, "specinfer", "iid"),
        ("D D D", 2, "specinfer", "delayed"),
        ("V D u u", 2, "specinfer", "delayed"),
        ("d home down down down 6 enter", 2, "khisti", "delayed"),
    ],
)
async def test_keys_go_through_the_verifiers_that_fit_the_trees_and_the_ways_to_draw_them(
    keys: str, rollouts: int, verifier: str, drafting: str
) -> None:
    async with shown(DRAWN, config=drawing(rollouts)) as (_, source, pilot):
        await pilot.press(*keys.split())
        assert (source.steering.config.verifier, source.steering.config.drafting) == (verifier, drafting)


@asynccontextmanager
async def drawer(slider: KnobName = "tau_h") -> AsyncIterator[tuple[DynaApp, ScriptedSource, Pilot[None]]]:
    async with shown() as (app, source, pilot):
        await pilot.press("d", *["down"] * list(IN_FORCE).index(slider))
        assert app.scene.slider == slider
        yield app, source, pilot


@pytest.mark.parametrize(("key", "back", "way"), [("left", "right", -1), ("right", "left", 1)])
async def test_with_shift_a_slider_moves_by_its_large_step(key: str, back: str, way: int) -> None:
    async with drawer() as (_, source, pilot):
        for slider, value in IN_FORCE.items():
            knob = info(slider)
            large = min(value + way * knob.coarse, 7.0)  # the upper bound of D0
            await pilot.press(f"shift+{key}")
            assert dict(source.turns)[slider] == pytest.approx(large)
            await pilot.press(back)
            assert dict(source.turns)[slider] == pytest.approx(large - way * knob.step)
            await pilot.press("down")


async def test_a_typed_value_becomes_the_slider_s_or_the_nearest_that_it_can_have() -> None:
    async with drawer() as (app, source, pilot):
        for keys in ("", ".", *TYPED):
            await pilot.press(*keys, "enter")
            assert app.scene.typed == ""
        assert source.turns == [("tau_h", value) for value in TYPED.values()]


test_transcript = transcripts(
    {
        "top p is refused where nothing is drawn": (shown, P_DOWN),
        "a recording is not turned": (partial(shown, racing(), steerable=False), T_UP),
        "at 0 the note says greedy and at a bound that nothing was turned": (
            partial(shown, racing(), config=RunConfig(temperature=0.05)),
            *(T_DOWN, T_DOWN),
        ),
        "what another key does is named by that key": (
            partial(shown, view=View(keys=KEYMAP.rebound({"temperature_up": ["f7"], "top_p_up": ["f8"]}))),
            *("f8", "f7"),
        ),
        "a turn is pending in each method until it has come there": (
            racing_warm,
            *(f"{T_UP} {T_UP}", [turned_temperature("dynatree", 3, 0.6, 0.7)], "w"),
        ),
        "a note tells of top p too": (racing_warm, P_DOWN),
        "undo takes back temperature and top p one by one": (racing_warm, f"{T_UP} {P_DOWN} w u", "u"),
        "in the drawer they are chosen turned and typed like every knob": (
            racing_warm,
            *("d end up", "right shift+left 1 . 2 enter", "down 0 . 5 enter 9 enter"),
        ),
        "the difference from ar that hf cannot have is explained": (
            partial(shown, racing(("hf", "dynatree", "ar")), config=WARM),
            "f",
        ),
        "notes tell of verifier and drafting what does not fit and what is undone": (
            delayed,
            "V",
            "V V",
            "D",
            "u",
            "u",
        ),
        "a turned verifier is pending until a round obeys it": (
            delayed,
            "V",
            [Knob(method="delayed", round=1, name="verifier", old=7, new=6, source="user", turn=1)],
        ),
        "another method says which one has them": (delayed, "w V"),
        "and how to race with it": (partial(shown, [sampled_run()]), "D"),
        "at temperature 0 the note says that nothing changes": (partial(delayed, config=drawing(temperature=0.0)), "V"),
        "a verifier that is turned while the models are loaded counts from the first round on": (
            partial(shown, LOADING, config=drawing()),
            "V",
        ),
        "a recordings verifier is not turned": (partial(delayed, steerable=False), "V"),
        "in the drawer the named values are listed with their numbers": (
            partial(delayed, size=(200, 60)),
            *("d home down down down", "6 enter"),
        ),
        "large steps add up and end at the stop": (partial(drawer, "tau_l"), "shift+right shift+right shift+right"),
        "large steps of a recording are none": (partial(shown, steerable=False), "d shift+left 5 enter"),
        "a typed value goes to the chosen slider": (partial(drawer, "d0"), "2 . 5 enter"),
        "what is rubbed out was not typed": (drawer, "0 . 6 9 backspace", "enter"),
        "a value that was typed for one slider is none for the next": (drawer, "0 . 5 down enter"),
    }
)
