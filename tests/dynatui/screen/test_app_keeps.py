"""What the keys write to disk, and what is left on the normal screen after the app."""

from pathlib import Path

import pytest

from dynatui.record.reader import read
from dynatui.screen import exit_summary
from dynatui.state.run_state import Prompt
from tests.dynatui.screen.shown_app import screen_text, shown
from tests.dynatui.scripted_runs import story


@pytest.fixture(autouse=True)
def _somewhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


async def test_a_recording_is_begun_and_ended_by_a_key() -> None:
    async with shown() as (app, source, pilot):
        await pilot.press("r")
        await pilot.pause()
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
        await pilot.pause()
        assert source.steering.file is None
        assert "recording already" in screen_text(app)


async def test_an_export_holds_the_run_as_it_is_shown(tmp_path: Path) -> None:
    async with shown() as (app, _, pilot):
        await pilot.press("x")
        await pilot.pause()
        (folder,) = app.written_paths
        assert folder.is_relative_to(tmp_path)
        assert read(folder / "run.jsonl") == story()[:-3]
        assert "<svg" in (folder / "screen.svg").read_text()


async def test_an_export_that_cannot_be_written_is_said_and_nothing_else_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.open", _no_space)
    monkeypatch.setattr("os.mkdir", _no_space)
    async with shown(size=(240, 60)) as (app, _, pilot):
        await pilot.press("x")
        await pilot.pause()
        assert app.written_paths == []
        assert "space" in screen_text(app)
    assert list(tmp_path.iterdir()) == []


async def test_the_exit_summary_names_what_was_seen() -> None:
    async with shown([Prompt(1, 1), *story(30)]) as (app, _, _pilot):
        lines = exit_summary.lines(
            app.event_reader.session_log, command="dynatui --tau-h 0.8", written=[Path("run.jsonl")]
        )
    assert any("Once upon" in line for line in lines)
    assert any("run.jsonl" in line for line in lines)
    assert any("--tau-h 0.8" in line for line in lines)


def _no_space(*_arguments: object, **_named: object) -> int:
    raise OSError(28, "No space left on device")
