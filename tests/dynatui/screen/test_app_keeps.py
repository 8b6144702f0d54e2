"""Files written by keys, background work, and the summary on the normal screen after the app."""

import csv
import threading
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from msgspec import json
from textual.pilot import Pilot

from dynatui.files import write_whole
from dynatui.record.reader import Runs, read_events
from dynatui.screen.app import DynaApp
from dynatui.screen.commands import record
from tests.dynatui.screen.shown_app import screen_text, shown
from tests.dynatui.scripted_runs import story

WIDE = (240, 60)
"""Notes with whole paths have room."""


@pytest.fixture(autouse=True)
def _somewhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


async def test_a_recording_is_begun_and_ended_by_a_key() -> None:
    async with shown() as (app, source, pilot):
        await pilot.press("r")
        path = source.steering.file
        assert path is not None
        assert path.stat().st_mode & 0o777 == 0o600
        assert "REC" in screen_text(app)
        await pilot.press("r")
        assert source.steering.file is None
        assert app.written_paths == [path]


async def test_what_is_recorded_already_is_not_recorded_again() -> None:
    async with shown(steerable=False) as (app, source, pilot):
        await pilot.press("r")
        assert source.steering.file is None
        assert "recording already" in screen_text(app)


async def exported(app: DynaApp, pilot: Pilot[None]) -> None:
    await pilot.press("x")
    app.aside.wait(30)
    await pilot.pause()


async def test_an_export_has_the_run_as_it_is_shown_and_all_that_is_shared_each_in_its_format(tmp_path: Path) -> None:
    async with shown(size=WIDE) as (app, _, pilot):
        await exported(app, pilot)
        (folder,) = app.written_paths
        assert f"exported 9 files to {folder}" in screen_text(app)
    assert folder.is_relative_to(tmp_path)
    assert read_events(folder / "run.jsonl") == [event for events in Runs(folder / "run.jsonl") for event in events]
    assert read_events(folder / "run.jsonl") == story()[:-3]
    assert ET.fromstring((folder / "screen.svg").read_text()).tag.endswith("svg")  # noqa: S314 - our own file
    with (folder / "figures.csv").open(newline="") as file:
        assert next(csv.reader(file))[0] == "method"
    page = (folder / "replay.html").read_text()
    assert "Once upon" in page
    assert "</html>" in page
    header, *frames = [json.decode(line) for line in (folder / "screen.cast").read_bytes().splitlines()]
    assert (header["version"], header["width"], header["height"]) == (2, *WIDE)
    assert all(kind == "o" for _, kind, _ in frames)


async def test_a_second_export_leaves_the_first_as_it_is() -> None:
    async with shown() as (app, _, pilot):
        await exported(app, pilot)
        before = {path: path.read_bytes() for path in app.written_paths[0].iterdir()}
        await exported(app, pilot)
        first, second = app.written_paths
    assert {path: path.read_bytes() for path in first.iterdir()} == before
    assert {path.name for path in second.iterdir()} == {path.name for path in before}


async def test_the_screen_goes_on_while_an_export_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()

    def slow(*_: object) -> Iterator[bytes]:
        go_on.wait(30)
        yield b""

    monkeypatch.setattr(record, "film", slow)
    async with shown(size=WIDE) as (app, _, pilot):
        await pilot.press("x")
        assert "writing 9 files to" in screen_text(app)
        await pilot.press("8", "x")
        assert app.scene.panel == "log"
        assert "still being written" in screen_text(app)
        go_on.set()
        app.aside.wait(30)
        await pilot.pause()
        assert "exported 9 files" in screen_text(app)
        assert len(app.written_paths) == 1


@pytest.mark.parametrize("full", ["screen.cast", ""], ids=["one file", "every file and folder"])
async def test_an_export_that_cannot_be_written_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    def refused(*_arguments: object, **_named: object) -> int:
        raise OSError(28, "No space left on device")

    def written(path: Path, content: bytes, *, mode: int | None = None) -> None:
        write_whole(path, content, mode=refused() if path.name.startswith(full) else mode)

    monkeypatch.setattr("dynatui.record.export.write_whole", written)
    if not full:
        monkeypatch.setattr("os.mkdir", refused)
    async with shown(size=WIDE) as (app, _, pilot):
        await exported(app, pilot)
        assert app.written_paths == []
        assert "No space left on device" in screen_text(app)
    assert list(tmp_path.iterdir()) == []
