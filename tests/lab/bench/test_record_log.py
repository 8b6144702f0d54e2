"""The log from which a stopped measurement resumes, for every cause of the stop; one process at a time writes it."""

import errno
import fcntl
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec import structs

from decoder.errors import ConfigError
from dynatui.lab.bench import record_log
from dynatui.lab.bench.paper import records as paper
from dynatui.lab.bench.record_log import RecordLog, opened
from tests.lab.bench.paper import reports

RECORDS = [reports.block(0), reports.block(1)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


def kept(path: Path) -> bytes:
    """Content of a log with both records."""
    log = read(path)
    log.begin(reports.header())
    for record in RECORDS:
        log.add(record)
    return path.read_bytes()


def read(path: Path) -> paper.PaperLog:
    return RecordLog(path, paper.FORMAT)


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Limits the size of files, as a full disk does: bytes beyond `size` are not written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_was_measured_is_read_again(path: Path) -> None:
    content = kept(path)
    again = read(path)
    assert (again.header, again.records) == (reports.header(), RECORDS)
    assert again.begin(reports.header()) == reports.header()
    assert path.read_bytes() == content
    assert len(content.splitlines()) == 3


@pytest.mark.parametrize("lost", [1, 60])
def test_a_line_that_was_cut_off_is_dropped_and_written_anew(lost: int, path: Path) -> None:
    whole = kept(path)
    path.write_bytes(whole[:-lost])
    log = read(path)
    assert log.records == RECORDS[:1]
    log.add(RECORDS[1])
    assert path.read_bytes() == whole
    path.write_bytes(whole[:9])
    assert read(path).header is None
    assert kept(path) == whole


def test_a_full_disk_is_one_line_and_half_a_block_is_no_block(path: Path) -> None:
    whole = kept(path)
    log = read(path)
    with room_for(len(whole) + 20), pytest.raises(ConfigError, match=r"cannot write .*: .*; set --output to another f"):
        log.add(reports.block(2))
    assert len(path.read_bytes()) == len(whole) + 20
    assert len(log.records) == len(read(path).records) == 2
    log.add(reports.block(2))
    assert read(path).records == [*RECORDS, reports.block(2)]
    assert path.read_bytes()[: len(whole)] == whole


def test_a_file_of_another_measurement_is_refused_by_what_differs(path: Path) -> None:
    kept(path)
    with pytest.raises(ConfigError, match="was started with other values of seed, warm_up; give the same values"):
        read(path).begin(reports.header(seed=1, warm_up=1))


@pytest.mark.parametrize(
    "content", ["a letter without end", '{"type":"begun",\n', '{"type":"begun","schema":0}\n', "\n"]
)
def test_a_file_of_another_kind_is_refused_and_left_as_it_is(content: str, path: Path) -> None:
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match="no measurement that this version can read; set --output to another folder"):
        read(path)
    assert path.read_text(encoding="utf-8") == content


def test_a_file_that_cannot_be_written_or_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot write .*No such file or directory; set --output to another folder"):
        read(tmp_path / "none" / "log").begin(reports.header())
    with pytest.raises(ConfigError, match=r"cannot read .*Is a directory; set --output to another folder"):
        read(tmp_path)
    with pytest.raises(ConfigError, match=r"^cannot write .*: Is a directory; set --output to another folder$"):
        opened(tmp_path, paper.FORMAT).__enter__()


@pytest.mark.parametrize("tail", [b"\0" * 40, b'{"type":"block","exp\n', b"\0\0\n\0\0\n", b"\n", b'{"type":"bl\xff'])
def test_what_is_damaged_at_the_end_does_not_count_and_is_overwritten(tail: bytes, path: Path) -> None:
    whole = kept(path)
    last = len(whole.splitlines(keepends=True)[-1])
    path.write_bytes(whole[:-last] + tail)
    log = read(path)
    assert log.records == RECORDS[:1]
    assert path.read_bytes() == whole[:-last] + tail
    log.add(RECORDS[1])
    assert path.read_bytes() == whole


@pytest.mark.parametrize("damage", [b"\0" * 40, b"\xff", b""])
def test_a_file_that_is_damaged_in_its_middle_is_refused_and_left_as_it_is(damage: bytes, path: Path) -> None:
    first, _, last = kept(path).splitlines(keepends=True)
    path.write_bytes(first + damage + b"\n" + last)
    with pytest.raises(ConfigError, match=r"damaged in line 2; remove this file, or set --output to another folder$"):
        read(path)
    assert path.read_bytes() == first + damage + b"\n" + last


def test_a_block_that_two_processes_took_counts_once_and_resumptions_are_no_blocks(path: Path) -> None:
    kept(path)
    assert read(path).of(paper.Resumed) == []
    read(path).add(structs.replace(reports.block(1), prompt_tokens=4))
    read(path).add(paper.Resumed(at="2026-01-02T00:00:00Z", commit="abc", version="1"))
    again = read(path)
    assert paper.blocks_of(again) == RECORDS
    assert [each.commit for each in again.of(paper.Resumed)] == ["abc"]


def test_a_log_with_a_number_beyond_its_range_is_refused(path: Path) -> None:
    path.write_bytes(re.sub(rb'"seed":\d+', b'"seed":' + b"9" * 400, kept(path)))
    with pytest.raises(ConfigError, match="holds no measurement that this version can read"):
        read(path)


def test_an_endless_file_is_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_log, "_MOST_BYTES", 2**20)
    with pytest.raises(ConfigError, match=r"/dev/zero has more than 1 MiB, more than any measurement"):
        read(Path("/dev/zero"))


def test_another_is_refused_until_the_end_or_an_error_and_what_is_there_stays_as_it_is(path: Path) -> None:
    whole = kept(path)
    line = r"another process is writing to .*log; wait until that process ends, or set --output to another folder$"
    with opened(path, paper.FORMAT), pytest.raises(ConfigError, match=line), opened(path, paper.FORMAT):
        pytest.fail("let in")
    with pytest.raises(ValueError, match="within"), opened(path, paper.FORMAT):
        raise ValueError("within")
    with opened(path, paper.FORMAT) as log:
        assert log.records == RECORDS
    assert path.read_bytes() == whole


@pytest.mark.parametrize("named", [True, False])
def test_where_files_cannot_be_locked_or_nothing_is_kept_nobody_is_refused(
    named: bool,  # noqa: FBT001 - a parameter of the test
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unsupported(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOTSUP, "not supported")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    log = path if named else None
    with opened(log, paper.FORMAT), opened(log, paper.FORMAT):
        pass
