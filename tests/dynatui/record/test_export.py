"""Exports are complete or absent, private, true to the figures and harmless; an asciicast has bounded frames."""

import csv
import os
import shutil
import stat
from datetime import UTC, datetime
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec import json, structs

from decoder.events import Event, Figures, Round, Run, Summary
from dynatui.cli.headless import replay_events
from dynatui.record import export
from dynatui.record.export import ExportError, figures_csv, figures_json, files_of, fill, new_folder, rounds_csv
from dynatui.record.reader import read_events
from dynatui.record.transcript import Transcript
from dynatui.screen.film import FPS, MOST_FRAMES, cast, moments
from dynatui.state.run_state import RunState
from tests.dynatui.scripted_runs import HOSTILE, plain_round, run, story, tree_round

NOON = datetime(2026, 3, 1, 12, 30, 5, tzinfo=UTC)
FILES = {"screen.svg", "figures.json", "figures.csv", "rounds.csv", "text.txt", "command.txt", "run.jsonl"}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def exported(events: list[Event] | None = None, folder: Path | None = None) -> Path:
    files = files_of(story() if events is None else events, "<svg/>", "dynatui --d0 6")
    made = new_folder(folder, NOON)
    fill(made, files)
    return made


def table(content: str) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(content)))


def test_everything_goes_into_a_new_folder_here_that_only_its_owner_can_open(tmp_path: Path) -> None:
    folder = exported()
    assert folder == tmp_path / "here" / "dynatui-20260301-123005"
    assert {path.name for path in folder.iterdir()} == FILES
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert exported().name == "dynatui-20260301-123005-2"
    assert exported(folder=tmp_path / "a" / "b") == tmp_path / "a" / "b"
    given = [(folder / name).read_text() for name in ("screen.svg", "command.txt")]
    assert given == ["<svg/>", "dynatui --d0 6\n"]


def test_only_the_newest_run_so_far_is_exported() -> None:
    assert read_events(exported(story()[:7]) / "run.jsonl") == story()[:7]
    second = [run(prompt="second"), *story()[1:5]]
    assert read_events(exported([*story(), *second]) / "run.jsonl") == second


def test_the_json_is_what_a_replay_prints_and_the_text_what_the_watched_method_wrote() -> None:
    out = StringIO()
    replay_events(story(), Transcript(out, StringIO(), as_json=True))
    assert figures_json(story()) == out.getvalue()
    assert json.decode(figures_json(story()[:7]))["methods"]["ar"]["rounds"] == 2
    assert export.text(story()) == "Once upon" + " at a time" * 6 + "\n"


def test_the_figures_are_those_of_the_engine_and_all_of_them() -> None:
    *before, summary = story()
    assert isinstance(summary, Summary)
    told = structs.replace(summary.methods["dynatree"], near_tie=True)
    rows = table(figures_csv([*before, Summary(methods={"dynatree": told, "ar": summary.methods["ar"]})]))
    assert [row["method"] for row in rows] == ["dynatree", "ar"]
    assert set(rows[0]) == {"method", *Figures.__struct_fields__}
    assert (rows[0]["near_tie"], rows[0]["speedup"], rows[0]["peak_bytes"]) == ("true", "3.0", "")
    assert float(rows[0]["tokens_per_round"]) == told.tokens_per_round
    so_far = table(figures_csv(before))
    assert [row["rounds"] for row in so_far] == ["6", "6"]


def test_every_round_is_a_line_in_which_what_a_method_cannot_know_is_empty() -> None:
    rows = table(rounds_csv(story()))
    assert tuple(rows[0]) == tuple(export.ROUND_COLUMNS)
    assert len(rows) == sum(isinstance(event, Round) for event in story())
    first, plain = rows[2], rows[3]
    assert (first["method"], first["round"], first["position"], first["drafted"]) == ("dynatree", "1", "3", "5")
    assert (first["accepted"], first["committed"], first["t"], first["d0"]) == ("2", "3", "0.04", "5.2")
    assert (plain["method"], plain["tau_h"], plain["tau_l"], plain["d0"]) == ("ar", "", "", "")
    hidden = [structs.replace(e, draft_forwards=None) if isinstance(e, Round) else e for e in story()]
    row = table(rounds_csv(hidden))[0]
    assert (row["drafted"], row["accepted"], row["committed"]) == ("", "", "3")


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", " =1", 'a,"b', "a\nb"])
def test_a_name_stays_a_text_in_a_spreadsheet(name: str) -> None:
    events = [structs.replace(e, method=name) if isinstance(e, Round) else e for e in story() if _kept(e)]
    for content in (rounds_csv(events), figures_csv([run((name,)), *events[1:]])):
        shown = table(content)[0]["method"]
        assert not shown.lstrip().startswith(("=", "+", "-", "@"))
        assert "\n" not in shown
        assert name.strip() in shown.replace("␊", "\n").replace("    ", "\t")


def _kept(event: Event) -> bool:
    return isinstance(event, Run) or (isinstance(event, Round) and event.method == "ar")


def test_nothing_that_is_opened_as_text_steers_a_terminal() -> None:
    events = [run(("dynatree",), HOSTILE), *(e for e in story() if getattr(e, "method", "") == "dynatree")]
    events = [structs.replace(e, text=HOSTILE) if isinstance(e, Round) else e for e in events]
    fill(folder := new_folder(), files_of(events, "<svg/>", f"dynatui --prompt {HOSTILE}"))
    for path in folder.iterdir():
        steering = "\x1b\x07\r" if path.name in ("run.jsonl", "figures.json") else "\x1b\x07\x9b\u202e\r\x7f"
        assert not set(steering) & set(path.read_text()), path.name


def test_before_the_first_run_or_into_a_folder_that_exists_nothing_is_exported(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="no run to export yet"):
        exported([])
    with pytest.raises(ExportError, match="exists already"):
        exported(folder=tmp_path / "here")
    assert list((tmp_path / "here").iterdir()) == []


def test_where_nothing_can_be_written_it_goes_beside_the_recordings_or_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "here").rmdir()
    assert exported() == tmp_path / "state" / "dynatui" / "recordings" / "dynatui-20260301-123005"
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "state").touch()
    with pytest.raises(ExportError, match=r"cannot write .*recordings") as caught:
        exported()
    assert "\n" not in str(caught.value)


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def full(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ExportError, match="No space left on device"):
        exported()
    assert list((tmp_path / "here").iterdir()) == []


def test_a_file_has_its_name_once_it_is_whole(tmp_path: Path) -> None:
    seen: list[set[str]] = []

    def look() -> bytes:
        seen.append({path.name for path in folder.iterdir()})
        return b"second"

    folder = new_folder(tmp_path / "new")
    fill(folder, {"first": lambda: b"first", "second": look})
    assert seen == [{"first"}]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"first": b"first", "second": b"second"}


def test_a_program_that_is_killed_leaves_whole_files_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> int:
        raise KeyboardInterrupt

    folder = new_folder(tmp_path / "new")
    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        fill(folder, {"run.jsonl": lambda: b"{}"})
    assert not (folder / "run.jsonl").exists()


def lines(**given: Any) -> list[Any]:
    usual = {"frames": [(0.0, "a")], "size": (80, 24), "title": "t", "started_at": "2026-01-01T00:00:00Z"}
    return [json.decode(line) for line in cast(**{**usual, **given})]


def at(seconds: list[float]) -> list[Event]:
    return [run(), *(structs.replace(tree_round(number), t=t) for number, t in enumerate(seconds))]


def test_the_first_line_tells_version_size_and_start_and_every_other_a_time_and_what_is_sent() -> None:
    header, *frames = lines(frames=[(0.0, "a"), (0.5, "\x1b[1mé"), (1.0, "")])
    assert (header["version"], header["width"], header["height"], header["title"]) == (2, 80, 24, "t")
    assert header["timestamp"] == 1767225600
    assert header["idle_time_limit"] > 0
    assert frames == [[0.0, "o", "a"], [0.5, "o", "\x1b[1mé"]]
    starts = ("", "yesterday", "9999-99-99T00:00:00Z")
    assert not any("timestamp" in lines(started_at=started_at)[0] for started_at in starts)


def test_frames_are_a_tenth_of_a_second_apart_at_least() -> None:
    found = list(moments(story(), RunState()))
    assert found[0].state.rounds == 0
    assert found[-1].state.rounds == sum(isinstance(e, Round) and e.method == "dynatree" for e in story())
    assert found[-1].state.done
    times = [moment.seconds for moment in moments(at([0.01 * n for n in range(500)]), RunState())]
    assert all(b - a >= 1 / FPS - 1e-9 for a, b in pairwise(times[:-1]))
    assert len(times) > 40


def test_the_clock_is_the_watched_methods_own_decode_time_and_in_slow_motion_takes_as_long_as_on_the_screen() -> None:
    events: list[Event] = [run(), structs.replace(plain_round("ar", 0), t=9.0), structs.replace(tree_round(0), t=0.5)]
    clocks = [
        moments(events, RunState()),
        moments(events, RunState(chosen="ar")),
        moments(at([1.0]), RunState(), speed=0.25),
    ]
    assert [[moment.seconds for moment in found] for found in clocks] == [[0, 0.5, 0.5], [0, 9, 9], [0, 4, 4]]


def test_frames_are_bounded_and_times_never_fall_however_long_or_hostile_the_run() -> None:
    assert len(list(moments(at([60.0 * n for n in range(3 * MOST_FRAMES)]), RunState()))) <= MOST_FRAMES + 2
    times = [moment.seconds for moment in moments(at([0.5, 0.1, -3.0, 1e300, float("nan"), 0.7]), RunState())]
    assert times == sorted(times)
    assert times[-1] == 0.7
