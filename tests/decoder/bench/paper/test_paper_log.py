"""The file that a stopped measurement goes on from, whatever stopped it."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from decoder.bench.paper.log import PaperLog, paper_log
from decoder.bench.paper.records import Block, Turn
from decoder.errors import ConfigError
from decoder.events import Figures
from tests.decoder.bench.paper.beginnings import begun


def block(prompt: int) -> Block:
    turn = Turn(lane="ar", at=(Figures(rounds=4, committed=4),), kv_bytes=None, waited=0.0)
    return Block(experiment=0, prompt=prompt, repeat=0, prompt_tokens=3, turns=(turn,))


def kept(path: Path) -> PaperLog:
    log = paper_log(path)
    log.begin(begun())
    log.add(block(0))
    log.add(block(1))
    return log


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file can be larger, as if the disk were full: what is beyond is not written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_was_measured_is_read_again(tmp_path: Path) -> None:
    before, again = kept(tmp_path / "log"), paper_log(tmp_path / "log")
    assert (again.begun, again.records) == (before.begun, before.records)
    assert again.begin(begun()) == before.begun
    assert len((tmp_path / "log").read_bytes().splitlines()) == 3


@pytest.mark.parametrize("lost", [1, 20, 60])
def test_a_line_that_was_cut_off_is_dropped_and_written_anew(lost: int, tmp_path: Path) -> None:
    path = tmp_path / "log"
    kept(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-lost])
    log = paper_log(path)
    assert log.records == [block(0)]
    log.add(block(1))
    assert path.read_bytes() == whole


def test_a_full_disk_is_one_line_and_half_a_block_is_no_block(tmp_path: Path) -> None:
    path = tmp_path / "log"
    kept(path)
    whole = path.read_bytes()
    log = paper_log(path)
    with (
        room_for(len(whole) + 20),
        pytest.raises(ConfigError, match=r"cannot write .*: .*; let --output name another f"),
    ):
        log.add(block(2))
    assert len(path.read_bytes()) == len(whole) + 20
    assert len(log.records) == len(paper_log(path).records) == 2
    assert path.read_bytes() == whole


def test_a_file_of_another_measurement_is_refused_by_what_differs(tmp_path: Path) -> None:
    kept(tmp_path / "log")
    with pytest.raises(ConfigError, match=r"holds a measurement with other seed, warm_up; ask for the same, or let"):
        paper_log(tmp_path / "log").begin(begun(seed=1, warm_up=2))


@pytest.mark.parametrize(
    "content", ["a letter without end", '{"type":"begun",\n', '{"type":"begun","schema":0}\n', "\n"]
)
def test_a_file_of_another_kind_is_refused_and_left_as_it_is(content: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match="holds no measurement of this version; let --output name another folder"):
        paper_log(path)
    assert path.read_text(encoding="utf-8") == content


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"cannot write .*No such file or directory; let --output name another folder"
    ):
        paper_log(tmp_path / "none" / "log").begin(begun())


def test_a_folder_in_its_place_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*Is a directory; let --output name another folder"):
        paper_log(tmp_path)
