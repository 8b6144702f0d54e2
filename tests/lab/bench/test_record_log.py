"""Only one process at a time can write to a log."""

import errno
import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from decoder.errors import ConfigError
from dynatui.lab.bench.record_log import alone

HOLDING = """
import sys, time
from pathlib import Path
from dynatui.lab.bench.record_log import alone
with alone(Path(sys.argv[1]), "wait"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_another_process_is_refused_until_this_one_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with subprocess.Popen([sys.executable, "-c", HOLDING, str(path)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        line = r"another process is writing to .*log; wait until that process ends, or name another"
        with pytest.raises(ConfigError, match=line), alone(path, "name another"):
            pytest.fail("let in")
        other.kill()
        other.wait()
    with alone(path, "name another"):
        assert path.exists()


def test_what_is_there_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a line\n")
    with alone(path, ""), path.open("ab") as file:
        file.write(b"another\n")
    assert path.read_bytes() == b"a line\nanother\n"


def test_an_error_within_lets_go(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="within"), alone(tmp_path / "log", ""):
        raise ValueError("within")
    with alone(tmp_path / "log", ""):
        pass


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^cannot write .*: Is a directory; name another$"):
        alone(tmp_path, "name another").__enter__()


def test_where_files_cannot_be_locked_nobody_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOTSUP, "not supported")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with alone(tmp_path / "log", ""), alone(tmp_path / "log", ""):
        pass


def test_nothing_is_held_where_nothing_is_kept() -> None:
    with alone(None, ""), alone(None, ""):
        pass
