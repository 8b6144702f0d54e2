"""The result at the end of a live run: when it is shown, what its keys do, and how it looks."""

import pytest
from msgspec import structs

from decoder.events import End, Summary
from dynatui.screen.pages.page import ResultPage
from dynatui.state.run_state import Prompt, Record
from tests.dynatui.screen.shown_app import FULL, SMALL, TABBED, screen_text, shown, told
from tests.dynatui.scripted_runs import run, story
from tests.dynatui.several_texts import session

ENDED: list[Record] = [Prompt(2, 2), *story(40)]


@pytest.mark.parametrize("size", [(200, 60), FULL, TABBED, SMALL], ids=str)
async def test_it_has_every_method_and_what_to_do_next(size: tuple[int, int], snapshot: object) -> None:
    async with shown(session(3), size) as (app, _, pilot):
        await pilot.pause()
        assert isinstance(app.screen, ResultPage)
        assert screen_text(app, -1) == snapshot


async def test_it_stays_until_a_key_and_comes_once_a_run() -> None:
    async with shown(ENDED, (200, 60)) as (app, source, pilot):
        for _ in range(3):
            app.tick()
        assert isinstance(app.screen, ResultPage)
        await pilot.press("escape")
        app.tick()
        await pilot.pause()
        assert not isinstance(app.screen, ResultPage)
        assert "n runs all prompts again" in await told(app, source, pilot)
        again = [Prompt(2, 2), *story(40)]
        await told(app, source, pilot, *again)
        assert isinstance(app.screen, ResultPage)


@pytest.mark.parametrize(("key", "steps"), [("n", [1]), ("R", [0]), ("i", []), ("escape", []), ("q", [])])
async def test_a_key_closes_it_and_does_what_it_does_elsewhere(key: str, steps: list[int]) -> None:
    async with shown(ENDED) as (app, source, pilot):
        await pilot.pause()
        await pilot.press(key)
        await pilot.pause()
        assert source.stopped == (key == "q")
        assert source.steps == steps
        if key != "q":
            assert not isinstance(app.screen, ResultPage)
            assert app.scene.mode == ("inspect" if key == "i" else "watch")


STOPPED = [End(method=name, reason="stopped") for name in ("dynatree", "ar")]


@pytest.mark.parametrize(
    "records",
    [
        [Prompt(1, 2), *story()],
        [Prompt(2, 2), *story()[:-1]],
        [Prompt(2, 2), *story()[:-3], *STOPPED, Summary(methods={})],
        [*ENDED, Prompt(1, 2), structs.replace(run(), prompt="again")],
    ],
    ids=["another prompt follows", "no summary yet", "the user left the text", "it runs again"],
)
async def test_it_is_not_shown_before_the_last_prompt_has_ended(records: list[Record]) -> None:
    async with shown(records) as (app, _, pilot):
        await pilot.pause()
        assert not isinstance(app.screen, ResultPage)


async def test_it_waits_while_the_user_looks_at_a_token_and_a_recording_has_none() -> None:
    async with shown([Prompt(2, 2), *story()[:-3]]) as (app, source, pilot):
        await pilot.press("i")
        await told(app, source, pilot, *story()[-3:])
        assert not isinstance(app.screen, ResultPage)
        await pilot.press("escape")
        app.tick()
        await pilot.pause()
        assert isinstance(app.screen, ResultPage)
    async with shown(ENDED, steerable=False) as (app, _, pilot):
        await pilot.pause()
        assert not isinstance(app.screen, ResultPage)
