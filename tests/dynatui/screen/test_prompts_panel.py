"""The list of prompts: its cursor, its filter, and moving to any prompt."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from textual.pilot import Pilot

from decoder.events import Event
from dynatui.screen.app import DynaApp
from dynatui.session import Session
from dynatui.sources.playback import TraceSource
from dynatui.state.run_state import Prompt
from tests.dynatui.screen.shown_app import FULL, MIDWAY, TABBED, screen_text, shown
from tests.dynatui.screen.transcripts import transcripts
from tests.dynatui.scripted_runs import HOSTILE, ScriptedSource, run, story, tree_round

PROMPTS = ("Once upon", "A ship sailed", f"The moon{HOSTILE} rose", "Rain fell", "The ship sank")


@asynccontextmanager
async def listing(size: tuple[int, int] = FULL) -> AsyncIterator[tuple[DynaApp, ScriptedSource, Pilot[None]]]:
    async with shown([Prompt(1, 5), *MIDWAY[1:]], size) as (app, source, pilot):
        source.steering.session = Session(PROMPTS)
        source.steering.record(Path("run.jsonl"))
        await pilot.press("7")
        yield app, source, pilot


@pytest.mark.parametrize("size", [FULL, TABBED])
async def test_every_prompt_of_the_session_is_listed(size: tuple[int, int]) -> None:
    async with listing(size) as (app, _, _pilot):
        seen = screen_text(app)
        assert all(words in seen for words in ("A ship sailed", "The moon", "Rain fell", "The ship sank", "waiting"))
        assert not set("\x1b\x07\x9b\u202e\r") & set(seen)


async def test_a_run_that_is_not_recorded_is_left_by_the_second_enter_on_the_same_prompt() -> None:
    async with listing() as (app, source, pilot):
        source.steering.record(None)
        await pilot.press("j", "enter")
        assert "not recorded: enter again goes to prompt 2" in screen_text(app)
        await pilot.press("j", "enter")
        assert source.steps == []
        await pilot.press("enter")
        assert source.steps == [2]


async def test_a_filter_is_typed_kept_in_sight_and_taken_away_again() -> None:
    async with listing() as (app, source, pilot):
        await pilot.press("/", *"ship", "enter")
        seen = screen_text(app)
        assert '"ship" 2 listed' in seen
        assert "Rain fell" not in seen
        assert app.scene.mode == "watch"
        await pilot.press("G", "enter")
        assert source.steps == [4]
        await pilot.press("escape")
        assert "Rain fell" in screen_text(app)


async def test_of_a_recording_all_runs_are_listed_and_enter_plays_one() -> None:
    tales: list[list[Event]] = [[run(("dynatree",), prompt), tree_round(0)] for prompt in PROMPTS]
    source = TraceSource(tales)
    app = DynaApp(source, ticking=False, clock=lambda: 0.0)
    async with app.run_test(size=FULL) as pilot:
        await pilot.press("7")
        assert all(words in screen_text(app) for words in ("A ship sailed", "Rain fell", "not played"))
        await pilot.press("G", "enter")
        app.tick()
        assert (source.number, app.scene.state.prompt_text) == (4, "The ship sank")


async def test_prompts_of_a_recording_with_many_runs_are_read_a_few_at_a_time() -> None:
    read = list[int]()

    def prompt_of(number: int) -> str:
        read.append(number)
        return f"Number {number}"

    app = DynaApp(TraceSource([story()] * 1000, prompt_of=prompt_of), ticking=False, clock=lambda: 0.0)
    async with app.run_test(size=FULL) as pilot:
        assert read == []
        await pilot.press("7")
        for _ in range(20):
            before = len(read)
            app.draw(everything=True)
            assert len(read) <= before + 100
        assert read == [*range(1000)]
        assert app.scene.openings[-1] == "Number 999"


test_transcript = transcripts(
    {
        "enter goes to the chosen prompt": (listing, "down j j k enter", "G enter", "G g enter"),
        "while another panel is chosen these keys do as before": (listing, "4 k enter"),
        "where another process decodes its prompts cannot be chosen": (partial(shown, steerable=False), "7 enter"),
    }
)
