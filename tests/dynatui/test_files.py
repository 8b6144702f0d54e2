"""Files, devices and pipes are read to their end; a pipe without a writer is an error."""

import os
import threading
import time
from pathlib import Path

import pytest

from dynatui import files
from dynatui.files import opened, to_append


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def test_a_writer_that_comes_soon_is_waited_for_and_may_be_slow(pipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PATIENCE_S", 0.5)

    def write() -> None:
        with pipe.open("wb") as out:
            time.sleep(0.6)
            out.write(b"x" * 2**17)

    writer = threading.Timer(0.1, write)
    writer.start()
    with opened(pipe) as file:
        assert file.read() == b"x" * 2**17
    writer.join()


def test_a_file_or_a_device_is_read_as_it_is_and_appended_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"one\ntwo")
    with opened(tmp_path / "file") as file:
        assert (file.readline(), file.read()) == (b"one\n", b"two")
    with opened(Path("/dev/zero")) as file:
        assert file.read(3) == bytes(3)
    for part in (b"one", b"two"):
        with to_append(tmp_path / "log") as log:
            log.write(part)
    assert (tmp_path / "log").read_bytes() == b"onetwo"


def test_a_pipe_without_a_process_at_its_other_end_is_an_error(pipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PATIENCE_S", 0.1)
    with opened(pipe) as file, pytest.raises(OSError, match="no process writes to this pipe"):
        file.read()
    with pytest.raises(OSError, match="No such device"):
        to_append(pipe)


@pytest.mark.parametrize("name", ["missing", "."])
def test_what_cannot_be_opened_or_read_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(OSError, match=r"No such file|directory"), opened(tmp_path / name) as file:
        file.read()
