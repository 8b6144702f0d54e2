"""Recordings survive crashes and full disks, never overwrite other files, and invalid ones are refused in one line."""

import errno
import fcntl
import operator
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from io import FileIO
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoder.errors import RecordingError
from decoder.events import Base, encode
from dynatui import files
from dynatui.record import reader, recording
from dynatui.record.reader import SERVERS, read_events
from dynatui.record.recording import RUNS, Form, Recorder, new_recording_path
from dynatui.state.run_state import Loading, Prompt
from dynatui.state.timeline import run_so_far
from tests.dynatui.fake_engine import round_, run, story
from tests.dynatui.servers.attach.scripted_session import EVERYTHING

RECORDED: dict[str, tuple[Form, Sequence[Base], Callable[[Path], Sequence[Base]]]] = {
    "runs": (RUNS, story("one"), read_events),
    "servers": (SERVERS, EVERYTHING, lambda path: list(reader.server_events(path))),
}
"""Form of a recording, events and the function that reads them."""


def record(path: Path, events: Sequence[Base], form: Form = RUNS) -> None:
    with Recorder(path, form=form) as recorder:
        for event in events:
            recorder.write(event)


@pytest.mark.parametrize("kind", RECORDED)
def test_what_was_written_is_read_back_and_what_is_recorded_later_follows(path: Path, kind: str) -> None:
    form, events, read_all = RECORDED[kind]
    record(path, events, form)
    assert list(read_all(path)) == list(events)
    record(path, events, form)
    assert read_all(path) == [*events, *events]


def test_every_event_is_in_the_file_as_soon_as_it_is_written_for_its_owner_alone(path: Path) -> None:
    recorder = Recorder(path)
    recorder.write(run())
    assert path.read_bytes() == encode(run())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    recorder.close()


ROUND = encode(round_("ar", 0, "x"))


def refusal(path: Path) -> str:
    with pytest.raises(RecordingError) as caught:
        read_events(path)
    return str(caught.value)


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


@given(st.sampled_from(sorted(RECORDED)), st.data())
def test_a_file_that_a_crash_tore_anywhere_is_read_to_its_last_whole_line_and_continued(
    tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject
) -> None:
    form, events, read_all = RECORDED[kind]
    whole = b"".join(map(encode, events))
    ends = list(accumulate(len(encode(event)) for event in events))
    near_an_end = st.builds(operator.sub, st.sampled_from(ends), st.integers(0, 2))
    cut = data.draw(st.integers(0, len(whole)) | st.integers(0, ends[0]) | near_an_end)
    path = tmp_path_factory.mktemp("torn") / "run.jsonl"
    path.write_bytes(whole[:cut])
    before = [event for event, end in zip(events, ends, strict=True) if end - 1 <= cut]  # a line may lack its end
    if before:
        assert read_all(path) == before
    record(path, events, form)
    assert read_all(path) == [*before, *events]


def test_a_blank_line_at_the_end_does_not_end_a_recording(path: Path) -> None:
    path.write_bytes(b"".join(map(encode, story("one"))) + b"\n")
    assert read_events(path) == story("one")
    record(path, story("two"))
    assert read_events(path) == story("one") + story("two")


SHORTENED = r"was shortened by another program .*; record again, and exclude record"


@pytest.mark.parametrize(
    ("lose", "why"),
    [
        (Path.unlink, r"run.jsonl was deleted while it was written, so nothing is recorded; rec"),
        (lambda path: path.write_bytes(b""), SHORTENED),  # as a rotation of logs does
        (lambda path: os.truncate(path, 9), SHORTENED),
    ],
)
def test_a_lost_recording_is_told_and_gets_no_half_a_run(path: Path, lose: Callable[[Path], object], why: str) -> None:
    recorder = Recorder(path)
    recorder.write(run())
    lose(path)
    left = path.exists() and path.read_bytes()
    with pytest.raises(RecordingError, match=why):
        recorder.write(run())
    recorder.close()
    assert (path.exists() and path.read_bytes()) == left
    path.unlink(missing_ok=True)

    def end() -> None:
        with Recorder(path) as again:
            again.write(run())
            lose(path)

    with pytest.raises(RecordingError, match=r"was (deleted|shortened by another program) while it was written"):
        end()


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


@pytest.mark.parametrize("content", [b"my thesis\n", b"\x00\xff\xfe", ROUND, b'{"a":1}'])
def test_a_file_of_another_kind_is_not_touched_but_an_empty_one_becomes_a_recording(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(RecordingError, match="is not a recording, so it is not changed"):
        Recorder(path)
    assert path.read_bytes() == content
    path.write_bytes(b"")
    record(path, story())
    assert read_events(path) == story()


@pytest.mark.parametrize("name", [".", "missing/run.jsonl", "file/run.jsonl"])
def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RecordingError, match=r"cannot write .*; give --record"):
        Recorder(tmp_path / name)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_an_error_at_the_event_that_meets_it_and_at_once_for_a_run_so_far() -> None:
    recorder = Recorder(Path("/dev/full"))
    with pytest.raises(RecordingError, match="No space left on device"):
        recorder.write(run())
    recorder.close()
    with pytest.raises(RecordingError, match="No space left on device"):
        Recorder(Path("/dev/full"), story())


def test_a_second_writer_here_or_in_another_process_is_refused_until_the_first_has_ended(path: Path) -> None:
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


def test_where_files_cannot_be_locked_they_are_written_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_what_cannot_be_read_or_holds_no_complete_event_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all("cannot read" in refusal(place) for place in (path, path.parent))
    for content in (b"", b'{"type":"run","sch', b"some text"):
        path.write_bytes(content)
        assert "holds no complete event" in refusal(path)
    monkeypatch.setattr(reader, "LONGEST_LINE", 1000)
    path.write_bytes(encode(run()) + b" " * 5000)
    assert "line 2 is longer than any event" in refusal(path)


def test_a_recording_begins_with_the_run_so_far_or_waits_for_one(path: Path) -> None:
    assert run_so_far([Loading("models"), Prompt(1, 2)]) == []
    recorder = Recorder(path, run_so_far([]))
    for _ in range(2):  # closing twice does no harm
        recorder.close()
    assert path.read_bytes() == b""
    records = [Loading("models"), Prompt(1, 2), *story("one"), Prompt(2, 2), *story("two")[:5]]
    with Recorder(path, run_so_far(records)) as recorder:
        for event in story("two")[5:]:
            recorder.write(event)
    assert read_events(path) == story("two")


NOON = datetime(2026, 3, 1, 12, 30, 5, tzinfo=UTC)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "dynatui" / "recordings"


def test_recordings_of_ones_own_are_named_after_the_time_and_private_and_do_not_meet(state: Path) -> None:
    first, second, third = (new_recording_path(NOON) for _ in range(3))
    names = ("20260301-123005.jsonl", "20260301-123005-2.jsonl", "20260301-123005-3.jsonl")
    assert [first, second, third] == [state / name for name in names]
    assert (stat.S_IMODE(first.stat().st_mode), stat.S_IMODE(state.stat().st_mode)) == (0o600, 0o700)
    record(second, story())
    assert first.read_bytes() == b""


def test_a_state_folder_that_cannot_be_is_one_clear_error(state: Path) -> None:
    state.parent.parent.touch()
    with pytest.raises(RecordingError, match=r"cannot write .*recordings"):
        new_recording_path(NOON)
