"""The page that shows what a server would be told."""

import re

import pytest
from msgspec import structs

from benchmarks.screen import TRACE
from decoder.events import Event, Round, Run
from dynatui.record.reader import read_events
from dynatui.servers.this_run import chains_of
from tests.dynatui.screen.shown_app import replayed, screen_text
from tests.dynatui.scripted_runs import runs_of

GREEDY = runs_of(read_events(TRACE))
TALL = (100, 90)


def told(**changes: str | float) -> list[Event]:
    """The run, which begins with other facts."""
    return [structs.replace(event, **changes) if isinstance(event, Run) else event for event in GREEDY[0]]


OTHER_TEXT = told(prompt="another prompt")
LINEAR = chains_of(event for event in GREEDY[0] if isinstance(event, Round) and event.method == "linear")


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


@pytest.mark.parametrize(
    ("runs", "seconds", "words"),
    [
        (GREEDY, 0.001, "of 30 that are needed"),
        ([told(temperature=0.6)], 1000.0, "is not known from this run"),
        ([GREEDY[0], OTHER_TEXT, GREEDY[0]], 1000.0, f"{2 * len(LINEAR.drafted)} rounds of 2 texts at temperature 0"),
        ([GREEDY[0], told(prompt="another prompt", draft="another draft")], 1000.0, "of 1 text at temperature 0"),
        ([told(draft_head="eagle3")], 1000.0, '"method": "eagle3"'),
    ],
    ids=["few rounds", "a temperature above 0", "a text that is decoded again", "another pair", "a head"],
)
async def test_the_page_counts_what_a_server_could_know(runs: list[list[Event]], seconds: float, words: str) -> None:
    async with replayed(runs, seconds, size=TALL) as (app, _, pilot):
        await pilot.press("A", "y")
        await pilot.pause()
        assert words in " ".join(screen_text(app, -1).split())
        assert bool(app.clipboard) == ("L(5) = " in screen_text(app, -1))
