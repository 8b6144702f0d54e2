"""Recordings survive crashes and full disks, never overwrite other files, and invalid ones are refused in one line."""

import errno
import fcntl
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from decoder.errors import RecordingError
from decoder.events import SCHEMA, Event, Run, encode
from dynatui import files
from dynatui.record import reader, recording
from dynatui.record.reader import read_events
from dynatui.record.recording import Recorder, new_recording_path
from dynatui.state.run_state import Loading, Prompt
from dynatui.state.timeline import run_so_far
from tests.dynatui.fake_engine import round_, run, story


def record(path: Path, events: list[Event]) -> None:
    with Recorder(path) as recorder:
        for event in events:
            recorder.write(event)


ROUND = encode(round_("ar", 0, "x"))


def refusal(path: Path) -> str:
    with pytest.raises(RecordingError) as caught:
        read_events(path)
    return str(caught.value)


def test_what_was_written_is_read_back(path: Path) -> None:
    record(path, story())
    assert read_events(path) == story()


def test_only_the_owner_can_read_a_new_recording(path: Path) -> None:
    record(path, story())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_every_event_is_in_the_file_as_soon_as_it_is_written(path: Path) -> None:
    recorder = Recorder(path)
    recorder.write(run())
    assert path.read_bytes() == encode(run())
    recorder.close()


def test_a_second_recording_follows_the_first(path: Path) -> None:
    record(path, story("one"))
    record(path, story("two"))
    assert read_events(path) == story("one") + story("two")


class Reluctant:
    """A file whose writes take only a few bytes, and every third time none."""

    def __init__(self, descriptor: int, mode: str) -> None:
        self._file = FileIO(descriptor, mode)
        self._calls = 0

    def write(self, data: memoryview) -> int | None:
        self._calls += 1
        return self._file.write(data[:7]) if self._calls % 3 else None

    def close(self) -> None:
        self._file.close()


def test_a_line_that_is_taken_in_parts_is_written_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "FileIO", Reluctant)
    record(path, story())
    assert path.read_bytes() == b"".join(map(encode, story()))


@pytest.mark.parametrize("cut", [1, 2, 40])
def test_a_line_that_a_crash_tore_is_passed_over(path: Path, cut: int) -> None:
    record(path, story())
    path.write_bytes(path.read_bytes()[: -cut - 1])
    assert read_events(path) == story()[:-1]


def test_a_torn_line_is_cut_off_before_the_next_run_is_added(path: Path) -> None:
    record(path, story("one"))
    path.write_bytes(path.read_bytes()[:-20])
    record(path, story("two"))
    assert read_events(path) == story("one")[:-1] + story("two")


def test_a_last_line_that_lacks_only_its_end_counts(path: Path) -> None:
    record(path, story("one"))
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    assert read_events(path) == story("one")
    record(path, story("two"))
    assert read_events(path) == story("one") + story("two")


@given(st.data())
def test_a_file_that_a_crash_tore_anywhere_is_continued(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = b"".join(map(encode, story("one")))
    path = tmp_path_factory.mktemp("torn") / "run.jsonl"
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)) | st.integers(0, len(encode(run()))))])
    try:
        before = read_events(path)
    except RecordingError:  # no line is complete
        before = []
    record(path, story("two"))
    assert read_events(path) == before + story("two")


def test_a_blank_line_at_the_end_does_not_end_a_recording(path: Path) -> None:
    path.write_bytes(b"".join(map(encode, story("one"))) + b"\n")
    assert read_events(path) == story("one")
    record(path, story("two"))
    assert read_events(path) == story("one") + story("two")


def test_a_recording_that_is_deleted_is_lost_at_the_next_event(path: Path) -> None:
    recorder = Recorder(path)
    recorder.write(run())
    path.unlink()
    with pytest.raises(
        RecordingError, match=r"run.jsonl was deleted while it was written, so nothing is recorded; rec"
    ):
        recorder.write(run())
    recorder.close()


@pytest.mark.parametrize("lose", [Path.unlink, lambda path: path.write_bytes(b""), lambda path: os.truncate(path, 9)])
def test_a_recording_that_is_lost_after_its_last_event_is_told_at_the_end(
    path: Path, lose: Callable[[Path], object]
) -> None:
    def end() -> None:
        with Recorder(path) as recorder:
            recorder.write(run())
            lose(path)

    with pytest.raises(RecordingError, match=r"was (deleted|shortened by another program) while it was written"):
        end()


def test_a_recording_that_is_cut_by_a_rotation_of_logs_is_lost_and_gets_no_half_a_run(path: Path) -> None:
    recorder = Recorder(path)
    recorder.write(run())
    os.truncate(path, 0)
    with pytest.raises(RecordingError, match=r"was shortened by another program .*; record again, and exclude record"):
        recorder.write(run())
    recorder.close()
    assert path.read_bytes() == b""


def test_a_recording_that_is_moved_or_added_to_is_kept(path: Path) -> None:
    with Recorder(path) as recorder:
        recorder.write(run())
        moved = path.rename(path.with_name("moved.jsonl"))
        with moved.open("ab") as other:
            other.write(b"\n")
        recorder.write(round_("ar", 0, "x"))
    assert read_events(moved) == [run(), round_("ar", 0, "x")]


def test_another_error_is_not_hidden_by_a_lost_recording(path: Path) -> None:
    def fail() -> None:
        with Recorder(path):
            path.unlink()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()


def test_a_pipe_that_nobody_reads_is_refused_within_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PATIENCE_S", 0.1)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(
        RecordingError, match=r"fifo: no process reads this pipe; start the process that reads it first"
    ):
        Recorder(tmp_path / "fifo")


def test_a_pipe_takes_events_until_its_reader_leaves(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    recorder = Recorder(path)
    recorder.write(run())
    assert os.read(reader, 2**16) == encode(run())
    leaving = threading.Timer(0.2, os.close, (reader,))
    leaving.start()
    with pytest.raises(RecordingError, match=r"the process that read .*fifo has ended; give --record a file"):
        recorder.write(run(prompt="x" * 2**20))
    leaving.join()
    recorder.close()


def test_an_empty_file_becomes_a_recording(path: Path) -> None:
    path.touch()
    record(path, story())
    assert read_events(path) == story()


@pytest.mark.parametrize("content", [b"my thesis\n", b"\x00\xff\xfe", ROUND, b'{"a":1}'])
def test_a_file_of_another_kind_is_not_touched(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(RecordingError, match="is not a recording, so it is not changed"):
        Recorder(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("name", [".", "missing/run.jsonl", "file/run.jsonl"])
def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RecordingError, match=r"cannot write .*; give --record"):
        Recorder(tmp_path / name)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_an_error_at_the_event_that_meets_it() -> None:
    recorder = Recorder(Path("/dev/full"))
    with pytest.raises(RecordingError, match="No space left on device"):
        recorder.write(run())
    recorder.close()


def test_a_second_writer_is_refused_and_changes_nothing_until_the_first_has_ended(path: Path) -> None:
    first = Recorder(path)
    first.write(run())
    with path.open("ab") as torn:
        torn.write(b'{"type":"ro')
    before = path.read_bytes()
    with pytest.raises(RecordingError, match=r"another process is writing .*; .* another file"):
        Recorder(path)
    assert path.read_bytes() == before
    first.close()
    Recorder(path).close()
    assert path.read_bytes() == encode(run())


def test_a_writer_of_another_process_is_refused(path: Path) -> None:
    code = "import sys, time; from pathlib import Path; from dynatui.record.recording import Recorder\n"
    code += "recorder = Recorder(Path(sys.argv[1])); print('ready', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"ready\n"
        with pytest.raises(RecordingError, match="another process is writing"):
            Recorder(path)
        other.kill()
        other.wait()
        Recorder(path).close()


def test_where_files_cannot_be_locked_they_are_written_all_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOTSUP, "not supported")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    record(path, story())
    assert read_events(path) == story()


def test_closing_waits_only_a_moment_for_a_line_that_nobody_takes(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    recorder, long = Recorder(path), run(prompt="x" * 2**17)
    writer = threading.Thread(target=recorder.write, args=(long,), daemon=True)
    writer.start()
    writer.join(0.2)
    assert writer.is_alive()
    began = time.monotonic()
    recorder.close()
    assert time.monotonic() - began < 2
    while writer.is_alive() and time.monotonic() - began < 10:
        with suppress(BlockingIOError):
            os.read(reader, 2**20)
    os.close(reader)
    assert not writer.is_alive(), "what follows goes nowhere"


def test_closing_twice_does_no_harm(path: Path) -> None:
    recorder = Recorder(path)
    recorder.close()
    recorder.close()


@pytest.mark.parametrize("content", [b"", b'{"type":"run","sch', b"some text"])
def test_a_file_without_a_complete_event_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert "holds no complete event" in refusal(path)


BAD_LINES = {
    "bytes that are no text": (b"\xff\xfe\x00\n", "line 2"),
    "no object": (b"[]\n", "Expected `object`"),
    "no such event": (b'{"type":"dance"}\n', "Invalid value 'dance'"),
    "not a number": (ROUND.replace(b'"t":0.1', b'"t":NaN'), "malformed"),
    "infinite": (ROUND.replace(b'"t":0.1', b'"t":1e999'), "out of range"),
    "huge": (ROUND.replace(b'"round":0', b'"round":1' + b"0" * 5000), "out of range"),
    "of another type": (ROUND.replace(b'"round":0', b'"round":"0"'), "Expected `int`, got `str`"),
    "unknown field": (ROUND.replace(b'"round":0', b'"round":0,"mood":1'), "unknown field `mood`"),
    "unknown method": (ROUND.replace(b'"ar"', b'"linear"'), "linear is not a method of this run"),
    "deep": (b'{"type":"run","methods":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", "line 2"),
}


@pytest.mark.parametrize(("bad", "reason"), BAD_LINES.values(), ids=BAD_LINES.keys())
def test_a_bad_line_is_refused_by_its_number_and_reason(path: Path, bad: bytes, reason: str) -> None:
    path.write_bytes(encode(run()) + bad)
    said = refusal(path)
    assert f"{path}: line 2: " in said
    assert reason in said
    assert "\n" not in said


def test_an_event_before_any_run_is_refused(path: Path) -> None:
    path.write_bytes(ROUND)
    assert "line 1: an event comes before any run" in refusal(path)


def test_a_newer_schema_is_refused_by_both_numbers(path: Path) -> None:
    path.write_bytes(encode(structs.replace(run(), schema=99)).replace(b'"seed"', b'"novel":true,"seed"'))
    assert f"schema 99, this version reads {SCHEMA}" in refusal(path)


def test_a_line_without_end_does_not_fill_the_memory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "LONGEST_LINE", 1000)
    path.write_bytes(encode(run()) + b" " * 5000)
    assert "line 2 is longer than any event" in refusal(path)


@pytest.mark.parametrize("name", [".", "missing.jsonl"])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    assert "cannot read" in refusal(tmp_path / name)


def test_runs_keep_their_methods_apart(path: Path) -> None:
    record(path, story(methods=("linear", "ar")) + story(methods=("fixed", "ar")))
    assert [set(event.methods) for event in read_events(path) if isinstance(event, Run)] == [
        {"linear", "ar"},
        {"fixed", "ar"},
    ]


def test_a_recording_that_begins_in_the_middle_of_a_run_is_whole(path: Path) -> None:
    records = [Loading("models"), Prompt(1, 2), *story("one"), Prompt(2, 2), *story("two")[:5]]
    with Recorder(path, run_so_far(records)) as recorder:
        for event in story("two")[5:]:
            recorder.write(event)
    assert read_events(path) == story("two")


def test_a_recording_that_begins_before_any_run_waits_for_one(path: Path) -> None:
    assert run_so_far([Loading("models"), Prompt(1, 2)]) == []
    Recorder(path, run_so_far([])).close()
    assert path.read_bytes() == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_disk_without_room_for_the_run_so_far_is_an_error_at_once() -> None:
    with pytest.raises(RecordingError, match="No space left on device"):
        Recorder(Path("/dev/full"), story())


NOON = datetime(2026, 3, 1, 12, 30, 5, tzinfo=UTC)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "dynatui" / "recordings"


def test_a_recording_of_ones_own_is_named_after_the_time_and_private(state: Path) -> None:
    path = new_recording_path(NOON)
    assert path == state / "20260301-123005.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(state.stat().st_mode) == 0o700


def test_two_recordings_of_one_second_do_not_meet(state: Path) -> None:
    first, second, third = (new_recording_path(NOON) for _ in range(3))
    assert (second.name, third.name) == ("20260301-123005-2.jsonl", "20260301-123005-3.jsonl")
    record(second, story())
    assert first.read_bytes() == b""
    assert first.parent == state


def test_a_state_folder_that_cannot_be_is_one_clear_error(state: Path) -> None:
    state.parent.parent.touch()
    with pytest.raises(RecordingError, match=r"cannot write .*recordings"):
        new_recording_path(NOON)
