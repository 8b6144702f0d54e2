"""The log from which a stopped measurement resumes, for every cause of the stop."""

import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec import structs

from decoder.errors import ConfigError
from dynatui.lab.bench import record_log
from dynatui.lab.bench.paper.records import FORMAT, PaperLog, Resumed, blocks_of
from dynatui.lab.bench.record_log import RecordLog
from tests.lab.bench.paper.headers import block, header


def kept(path: Path) -> PaperLog:
    log = RecordLog(path, FORMAT)
    log.begin(header())
    log.add(block(0))
    log.add(block(1))
    return log


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Limits the size of files, as a full disk does: bytes beyond `size` are not written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_was_measured_is_read_again(tmp_path: Path) -> None:
    before, again = kept(tmp_path / "log"), RecordLog(tmp_path / "log", FORMAT)
    assert (again.header, again.records) == (before.header, before.records)
    assert again.begin(header()) == before.header
    assert len((tmp_path / "log").read_bytes().splitlines()) == 3


@pytest.mark.parametrize("lost", [1, 20, 60])
def test_a_line_that_was_cut_off_is_dropped_and_written_anew(lost: int, tmp_path: Path) -> None:
    path = tmp_path / "log"
    kept(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-lost])
    log = RecordLog(path, FORMAT)
    assert log.records == [block(0)]
    log.add(block(1))
    assert path.read_bytes() == whole


def test_a_full_disk_is_one_line_and_half_a_block_is_no_block(tmp_path: Path) -> None:
    path = tmp_path / "log"
    kept(path)
    whole = path.read_bytes()
    log = RecordLog(path, FORMAT)
    with room_for(len(whole) + 20), pytest.raises(ConfigError, match=r"cannot write .*: .*; set --output to another f"):
        log.add(block(2))
    assert len(path.read_bytes()) == len(whole) + 20
    assert len(log.records) == len(RecordLog(path, FORMAT).records) == 2
    assert path.read_bytes() == whole


def test_a_file_of_another_measurement_is_refused_by_what_differs(tmp_path: Path) -> None:
    kept(tmp_path / "log")
    with pytest.raises(ConfigError, match=r"was started with other values of seed, warm_up; give the same values, or"):
        RecordLog(tmp_path / "log", FORMAT).begin(header(seed=1, warm_up=2))


@pytest.mark.parametrize(
    "content", ["a letter without end", '{"type":"begun",\n', '{"type":"begun","schema":0}\n', "\n"]
)
def test_a_file_of_another_kind_is_refused_and_left_as_it_is(content: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match="no measurement that this version can read; set --output to another folder"):
        RecordLog(path, FORMAT)
    assert path.read_text(encoding="utf-8") == content


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot write .*No such file or directory; set --output to another folder"):
        RecordLog(tmp_path / "none" / "log", FORMAT).begin(header())


def test_a_folder_in_its_place_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*Is a directory; set --output to another folder"):
        RecordLog(tmp_path, FORMAT)


@pytest.mark.parametrize("tail", [b"\0" * 40, b'{"type":"block","exp\n', b"\0\0\n\0\0\n", b"\n", b'{"type":"bl\xff'])
def test_what_is_damaged_at_the_end_is_dropped(tail: bytes, tmp_path: Path) -> None:
    path = tmp_path / "log"
    kept(path)
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    assert RecordLog(path, FORMAT).records == [block(0), block(1)]
    assert path.read_bytes() == whole


@pytest.mark.parametrize("damage", [b"\0" * 40, b"\xff", b""])
def test_a_file_that_is_damaged_in_its_middle_is_refused_and_left_as_it_is(damage: bytes, tmp_path: Path) -> None:
    path = tmp_path / "log"
    kept(path)
    first, _, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + damage + b"\n" + last)
    with pytest.raises(ConfigError, match=r"damaged in line 2; remove this file, or set --output to another folder$"):
        RecordLog(path, FORMAT)
    assert path.read_bytes() == first + damage + b"\n" + last


def test_a_block_that_two_processes_took_counts_once(tmp_path: Path) -> None:
    kept(tmp_path / "log")
    twice = RecordLog(tmp_path / "log", FORMAT)
    twice.add(structs.replace(block(1), prompt_tokens=4))
    assert blocks_of(RecordLog(tmp_path / "log", FORMAT)) == [block(0), block(1)]


def test_a_log_without_any_resumption_is_read_and_one_with_it_too(tmp_path: Path) -> None:
    log = kept(tmp_path / "log")
    assert log.of(Resumed) == []
    log.add(Resumed(at="2026-01-02T00:00:00Z", commit="abc", version="1"))
    again = RecordLog(tmp_path / "log", FORMAT)
    assert (blocks_of(again), [each.commit for each in again.of(Resumed)]) == ([block(0), block(1)], ["abc"])


def test_a_log_with_a_number_beyond_its_range_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    kept(path)
    path.write_bytes(re.sub(rb'"seed":\d+', b'"seed":' + b"9" * 400, path.read_bytes()))
    with pytest.raises(ConfigError, match="holds no measurement that this version can read"):
        RecordLog(path, FORMAT)


def test_an_endless_file_is_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_log, "_MOST_BYTES", 2**20)
    with pytest.raises(ConfigError, match=r"/dev/zero has more than 1 MiB, more than any measurement"):
        RecordLog(Path("/dev/zero"), FORMAT)
