"""Keys of the drawer: large steps, and typed values."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
from textual.pilot import Pilot

from decoder.knobs import KnobName
from dynatui.knobs import info
from dynatui.screen.app import DynaApp
from tests.dynatui.screen.shown_app import shown
from tests.dynatui.screen.transcripts import transcripts
from tests.dynatui.scripted_runs import ScriptedSource

IN_FORCE: dict[KnobName, float] = {"tau_h": 0.8, "tau_l": 0.4, "d0": 6.0}


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


TYPED = {".5": 0.5, "0.55": 0.55, "1": 1.0, "0.512345678": 0.512, "9": 1.0, "0": 0.41, "0..6": 0.6, "0.6.5": 0.65}


async def test_a_typed_value_becomes_the_slider_s_or_the_nearest_that_it_can_have() -> None:
    async with drawer() as (app, source, pilot):
        for keys in TYPED:
            await pilot.press(*keys, "enter")
            assert app.scene.typed == ""
        assert source.turns == [("tau_h", value) for value in TYPED.values()]


@pytest.mark.parametrize("keys", ["", "."])
async def test_where_no_number_was_typed_nothing_is_set(keys: str) -> None:
    async with drawer() as (app, source, pilot):
        await pilot.press(*keys, "enter")
        assert source.turns == []
        assert app.scene.typed == ""


test_transcript = transcripts(
    {
        "large steps add up and end at the stop": (partial(drawer, "tau_l"), "shift+right shift+right shift+right"),
        "large steps of a recording are none": (partial(shown, steerable=False), "d shift+left 5 enter"),
        "a typed value goes to the chosen slider": (partial(drawer, "d0"), "2 . 5 enter"),
        "what is rubbed out was not typed": (drawer, "0 . 6 9 backspace", "enter"),
        "a value that was typed for one slider is none for the next": (drawer, "0 . 5 down enter"),
    }
)
