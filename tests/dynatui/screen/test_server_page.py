"""The page that shows what a server would be told."""

import re

from msgspec import structs

from benchmarks.traces import TRACE
from decoder.events import Event, Round, Run
from dynatui.record.reader import read_events
from dynatui.servers.this_run import chains_of
from tests.dynatui.screen.shown_app import replayed, screen_text
from tests.dynatui.scripted_runs import runs_of

GREEDY = runs_of(read_events(TRACE))
TALL = (100, 90)


def warmer(event: Event) -> Event:
    return structs.replace(event, temperature=0.6) if isinstance(event, Run) else event


async def test_acceptance_by_position_and_the_options_of_each_engine_are_shown_and_copied() -> None:
    async with replayed(GREEDY, 1000.0, size=TALL) as (app, _, pilot):
        await pilot.press("A")
        await pilot.pause()
        page = screen_text(app, -1)
        assert "What vLLM would be told" in page
        assert "L(5) = " in page
        assert "vllm serve books-16m" in page
        assert "books-1m. Speed-up over plain decoding, by running requests" in page
        assert re.search(r"advised ━━ .*K 1 .*break-even", page)
        await pilot.press("right", "y")
        await pilot.pause()
        assert "What SGLang would be told" in screen_text(app, -1)
        assert "--speculative" in app.clipboard or "sglang" in app.clipboard
        await pilot.press("A")
        assert len(app.screen_stack) == 1


async def test_before_enough_rounds_the_page_says_how_many_are_missing() -> None:
    async with replayed(GREEDY, 0.001, size=TALL) as (app, _, pilot):
        await pilot.press("A")
        await pilot.pause()
        assert "of 30 that are needed" in " ".join(screen_text(app, -1).split())


async def test_above_temperature_0_the_page_says_that_a_server_would_accept_otherwise() -> None:
    async with replayed([[warmer(event) for event in run] for run in GREEDY], 1000.0, size=TALL) as (app, _, pilot):
        await pilot.press("A", "y")
        await pilot.pause()
        assert "is not known from this run" in " ".join(screen_text(app, -1).split())
        assert app.clipboard == ""


async def test_the_texts_before_count_too_and_a_text_that_is_decoded_again_counts_once() -> None:
    first, second = GREEDY[0], [other_text(event) for event in GREEDY[0]]
    async with replayed([first, second, first], 1000.0, size=TALL) as (app, _, pilot):
        await pilot.press("A")
        await pilot.pause()
        page = screen_text(app, -1)
        rounds = len(
            chains_of(event for event in first if isinstance(event, Round) and event.method == "linear").drafted
        )
        assert f"{2 * rounds} rounds of 2 texts at temperature 0" in page


async def test_a_head_is_named_as_such() -> None:
    of_a_head = [
        [structs.replace(event, draft_head="eagle3") if isinstance(event, Run) else event for event in run]
        for run in GREEDY
    ]
    async with replayed(of_a_head, 1000.0, size=TALL) as (app, _, pilot):
        await pilot.press("A", "y")
        await pilot.pause()
        assert '"method": "eagle3"' in app.clipboard


def other_text(event: Event) -> Event:
    return structs.replace(event, prompt="another prompt") if isinstance(event, Run) else event


async def test_texts_of_another_pair_do_not_count() -> None:
    other = [structs.replace(event, draft="another draft") if isinstance(event, Run) else event for event in GREEDY[0]]
    async with replayed([GREEDY[0], [other_text(event) for event in other]], 1000.0, size=TALL) as (app, _, pilot):
        await pilot.press("A")
        await pilot.pause()
        assert "of 1 text at temperature 0" in screen_text(app, -1)
