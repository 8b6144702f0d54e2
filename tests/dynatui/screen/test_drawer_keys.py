"""Keys of the drawer: large steps, and typed values."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from textual.pilot import Pilot

from decoder.knobs import KnobName
from dynatui.knobs import info
from dynatui.screen.app import DynaApp
from tests.dynatui.screen.shown_app import shown
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


async def test_large_steps_add_up_and_end_at_the_stop() -> None:
    async with drawer("tau_l") as (_, source, pilot):
        await pilot.press("shift+right", "shift+right", "shift+right")
        assert source.turns == [("tau_l", 0.6), ("tau_l", 0.79)]


async def test_large_steps_of_a_recording_are_none() -> None:
    async with shown(steerable=False) as (_, source, pilot):
        await pilot.press("d", "shift+left", "5", "enter")
        assert source.turns == []


TYPED = {".5": 0.5, "0.55": 0.55, "1": 1.0, "0.512345678": 0.512, "9": 1.0, "0": 0.41, "0..6": 0.6, "0.6.5": 0.65}


async def test_a_typed_value_becomes_the_slider_s_or_the_nearest_that_it_can_have() -> None:
    async with drawer() as (app, source, pilot):
        for keys in TYPED:
            await pilot.press(*keys, "enter")
            assert app.scene.typed == ""
        assert source.turns == [("tau_h", value) for value in TYPED.values()]


async def test_a_typed_value_goes_to_the_chosen_slider() -> None:
    async with drawer("d0") as (_, source, pilot):
        await pilot.press("2", ".", "5", "enter")
        assert source.turns == [("d0", 2.5)]


async def test_what_is_rubbed_out_was_not_typed() -> None:
    async with drawer() as (app, source, pilot):
        await pilot.press("0", ".", "6", "9", "backspace")
        assert app.scene.typed == "0.6"
        await pilot.press("enter")
        assert source.turns == [("tau_h", 0.6)]


@pytest.mark.parametrize("keys", ["", "."])
async def test_where_no_number_was_typed_nothing_is_set(keys: str) -> None:
    async with drawer() as (app, source, pilot):
        await pilot.press(*keys, "enter")
        assert source.turns == []
        assert app.scene.typed == ""


async def test_a_value_that_was_typed_for_one_slider_is_none_for_the_next() -> None:
    async with drawer() as (app, source, pilot):
        await pilot.press("0", ".", "5", "down", "enter")
        assert app.scene.slider == "tau_l"
        assert source.turns == []
