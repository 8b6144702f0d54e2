"""Recordings are recognised by content; other files are refused in one line that says what to give."""

import os
import threading
from pathlib import Path

import pytest

from decoder.errors import DecoderError
from decoder.events import encode
from dynatui.report import inputs
from dynatui.report.inputs import page_of
from tests.dynatui.scripted_runs import run, story

RECORDING = b"".join(map(encode, story()))


def put(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def refusal(path: Path, run_number: int | None = None) -> str:
    with pytest.raises(DecoderError) as caught:
        page_of(path, run_number)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_recording_is_one_whatever_its_name(tmp_path: Path) -> None:
    assert page_of(put(tmp_path / "x.bin", RECORDING)).scripts


def test_a_recording_that_was_cut_off_in_a_line_is_shown_up_to_the_last_whole_one(tmp_path: Path) -> None:
    whole, cut = put(tmp_path / "a", RECORDING), put(tmp_path / "b", RECORDING + b'{"type":"round","meth')
    assert page_of(whole).data == page_of(cut).data


def test_one_run_of_several_can_be_asked_for(tmp_path: Path) -> None:
    path = put(tmp_path / "x", RECORDING + encode(run(prompt="Another")))
    assert "Another" in page_of(path, 2).body
    assert "Another" not in page_of(path, 1).body
    assert "has no run 3; give --run at most 2" in refusal(path, 3)


def test_a_recording_comes_through_a_pipe_too(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(RECORDING,))
    writer.start()
    assert page_of(pipe).scripts
    writer.join()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"hello\n", "is no recording; give a recording"),
        (b'{"a":1}\n', "is no recording; give a recording"),
        (b"[" * 100_000, "is no recording"),
        (b"\xff\x00\n", "is no recording"),
        (b'{"type":"run"}\n', "line 1: "),
        (b'{"type":"run","schema":99}\n', "a newer dynatui wrote this line (schema 99"),
        (b'{"setup":{"schema":1}}', "is a benchmark, which has no page; bench speed prints its tables"),
        (b'{"begun":{"schema":1}}', "is a benchmark, which has no page; the report.md beside it has its tables"),
    ],
)
def test_what_is_no_recording_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    assert reason in refusal(put(tmp_path / "x", content))


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "cannot read" in refusal(tmp_path / "nothing")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    assert "cannot read" in refusal(tmp_path)


def test_what_may_not_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(_path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(inputs, "opened", closed)
    assert "Permission denied" in refusal(put(tmp_path / "x", RECORDING))


def test_what_no_page_can_hold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "MOST_BYTES", 100)
    assert "more than" in refusal(put(tmp_path / "x", RECORDING))
