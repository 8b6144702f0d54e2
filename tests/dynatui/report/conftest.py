"""Fixtures with pages of recordings, and a browser if one is installed."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from decoder.events import Event
from dynatui.record.reader import Runs
from dynatui.report.page import written
from dynatui.report.replay import replay_page
from tests.dynatui.report.chromium import PROGRAM, Browser, chromium
from tests.dynatui.scripted_runs import runs_of

TRACES = Path(__file__).parents[2] / "traces"


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if PROGRAM is None:
        pytest.skip("Chromium is not installed")
    with chromium(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> str:
    page = tmp_path_factory.mktemp("pages") / "demo.html"
    page.write_text(written(replay_page("demo.jsonl", Runs(TRACES / "demo.jsonl"))), encoding="utf-8")
    return page.as_uri()


@pytest.fixture
def page_of_events(tmp_path: Path) -> Callable[[Iterable[Event]], str]:
    def made(events: Iterable[Event]) -> str:
        page = tmp_path / "page.html"
        page.write_text(written(replay_page("run.jsonl", runs_of(events))), encoding="utf-8")
        return page.as_uri()

    return made
