"""Keys that end a run ask once if the run would be lost."""

from functools import partial
from pathlib import Path

import pytest
from textual.widgets import Static

from dynatui.keymap import KEYMAP
from dynatui.screen import commands
from dynatui.screen.app import DynaApp
from dynatui.session import View
from dynatui.state.run_state import Failure, Loading, Prompt, Record
from tests.dynatui.screen.shown_app import FULL, MIDWAY, SMALL, screen_text, shown
from tests.dynatui.screen.transcripts import transcripts
from tests.dynatui.scripted_runs import ScriptedSource, run, story

STEPS = {"n": 1, "N": -1, "R": 0}


@pytest.mark.parametrize("key", STEPS)
@pytest.mark.parametrize("size", [FULL, SMALL, (39, 9)])
async def test_a_run_that_is_not_recorded_is_left_by_the_second_press(key: str, size: tuple[int, int]) -> None:
    async with shown(size=size) as (app, source, pilot):
        await pilot.press(key)
        assert source.steps == []
        assert f"not recorded: {key} again leaves this run" in screen_text(app)
        await pilot.press(key)
        assert source.steps == [STEPS[key]]
        assert "not recorded" not in screen_text(app)


async def test_after_a_while_the_question_is_asked_again() -> None:
    seconds, source = [0.0], ScriptedSource(MIDWAY)
    app = DynaApp(source, ticking=False, clock=lambda: seconds[0])
    async with app.run_test(size=FULL) as pilot:
        await pilot.press("n")
        seconds[0] = 60.0
        app.tick()
        await pilot.press("n")
        assert source.steps == []
        await pilot.press("n")
        assert source.steps == [1]


async def test_every_run_has_its_own_question() -> None:
    async with shown() as (app, source, pilot):
        await pilot.press("n", "n")
        source.records += [Prompt(2, 2), *story()[:-3]]
        app.tick()
        await pilot.press("n")
        assert source.steps == [1]


async def test_a_run_that_is_recorded_is_left_at_once() -> None:
    async with shown() as (_, source, pilot):
        source.steering.record(Path("run.jsonl"))
        await pilot.press("n", "R")
        assert source.steps == [1, 0]


@pytest.mark.parametrize(
    "records",
    [
        [Loading("importing torch")],
        [Prompt(1, 2), run()],
        [Prompt(1, 2), *story()],
        [*MIDWAY, Failure("out of memory", 3)],
    ],
    ids=["loading", "no round yet", "complete", "failed"],
)
async def test_where_nothing_is_lost_nothing_is_asked(records: list[Record]) -> None:
    async with shown(records) as (_, source, pilot):
        await pilot.press("R")
        assert source.steps == [0]


async def test_the_command_palette_asks_as_well_and_names_keys_of_the_settings() -> None:
    async with shown(view=View(keys=KEYMAP.rebound({"next_prompt": ["f5"]}))) as (app, source, pilot):
        command = commands.find("prompt(1)")
        assert command is not None
        command(app)
        await pilot.pause()
        assert source.steps == []
        assert "not recorded: f5 again leaves this run" in screen_text(app)
        command(app)
        assert source.steps == [1]


@pytest.mark.parametrize(("recorded", "told"), [(None, True), (Path("run.jsonl"), False)])
async def test_the_page_of_a_prompt_says_what_running_it_ends(recorded: Path | None, *, told: bool) -> None:
    async with shown() as (app, source, pilot):
        source.steering.record(recorded)
        await pilot.press("E")
        words = str(app.screen.query_one(Static).render())
        assert ("ends this run, which is not recorded" in words) == told


test_transcript = transcripts(
    {
        "another key is no answer": (shown, "n N R o n"),
        "what others have written is never asked about": (partial(shown, steerable=False), "n"),
    }
)
