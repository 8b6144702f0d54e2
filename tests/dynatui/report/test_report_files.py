"""Recordings are recognised by content; pages are written atomically for their owner and never replace other files."""

import errno
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from decoder.errors import ConfigError, DecoderError
from decoder.events import encode
from dynatui.cli import report
from dynatui.cli.report import page_of, require_free, write_report
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


def test_a_recording_is_one_whatever_its_name_and_is_shown_up_to_its_last_whole_line(tmp_path: Path) -> None:
    whole, cut = put(tmp_path / "a.bin", RECORDING), put(tmp_path / "b", RECORDING + b'{"type":"round","meth')
    assert page_of(whole).replace("a.bin", "b") == page_of(cut)


def test_one_run_of_several_can_be_asked_for_also_through_a_pipe(tmp_path: Path) -> None:
    path = put(tmp_path / "x", RECORDING + encode(run(prompt="Another")))
    assert "Another" in page_of(path, 2)
    assert "Another" not in page_of(path, 1)
    assert "has no run 3; give --run at most 2" in refusal(path, 3)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(RECORDING,))
    writer.start()
    assert "<script>" in page_of(pipe)
    writer.join()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "holds no complete event; give a file that --record has written"),
        (b"hello\n", "line 1: JSON is malformed"),
        (b'{"a":1}\n', "line 1: Object missing required field `type`"),
        (b'{"type":"run"}\n', "line 1: "),
        (b'{"type":"run","schema":99}\n', "a newer dynatui wrote this line (schema 99"),
    ],
)
def test_what_is_no_recording_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    assert reason in refusal(put(tmp_path / "x", content))


@pytest.mark.parametrize("name", ["nothing", "."])
def test_what_is_not_there_or_a_folder_is_refused(tmp_path: Path, name: str) -> None:
    assert "cannot read" in refusal(tmp_path / name)


def test_what_no_page_can_hold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "MOST_BYTES", 100)
    assert "more than" in refusal(put(tmp_path / "x", RECORDING))


def unwritten(path: Path, *, force: bool = False) -> str:
    before = sorted(each.name for each in path.parent.iterdir()) if path.parent.is_dir() else []
    with pytest.raises(ConfigError) as caught:
        write_report("page", path, force=force)
    assert before == (sorted(each.name for each in path.parent.iterdir()) if path.parent.is_dir() else [])
    assert "\n" not in str(caught.value)
    return str(caught.value)


def rights(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_page_is_for_its_owner_alone_and_replaced_only_by_force_with_the_rights_that_it_has(tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    write_report("päge", page, force=False)
    assert (page.read_bytes(), rights(page)) == ("päge".encode(), 0o600)
    assert "exists already" in unwritten(page)
    assert page.read_bytes() == "päge".encode()
    page.chmod(0o644)
    write_report("new", page, force=True)
    assert (page.read_text(), rights(page), len(list(tmp_path.iterdir()))) == ("new", 0o644, 1)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("nothing")])
def test_only_a_file_is_ever_replaced(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "there"
    make(path)
    assert "not a file that a page could replace" in unwritten(path, force=True)
    for other in (tmp_path, Path(os.devnull)):
        with pytest.raises(ConfigError, match="not a file that a page could replace"):
            require_free(other, force=True)
    with pytest.raises(ConfigError, match="not a file that a page could replace"):
        write_report("page", Path(os.devnull), force=True)


def test_a_link_stays_a_link_to_the_page(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("old")
    (tmp_path / "link").symlink_to("a.html")
    write_report("new", tmp_path / "link", force=True)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a.html").read_text() == "new"


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    assert "No such file or directory" in unwritten(tmp_path / "nowhere" / "a.html")
    assert "cannot write /proc/a.html" in unwritten(Path("/proc/a.html"))
    assert "File name too long" in unwritten(tmp_path / f"{'a' * 300}.html")


@pytest.mark.parametrize("old", [None, "old"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_full_disk_or_an_interrupt_leaves_all_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, old: str | None
) -> None:
    page = tmp_path / "a.html"
    if old:
        page.write_text(old)

    def broken(_descriptor: int) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises((ConfigError, KeyboardInterrupt), match=r"No space left on device|^$"):
        write_report("page", page, force=True)
    assert [path.read_text() for path in tmp_path.iterdir()] == [old] * bool(old)
