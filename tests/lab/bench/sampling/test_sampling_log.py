"""The log from which a stopped measurement resumes."""

from pathlib import Path

import pytest

from decoder.errors import ConfigError
from dynatui.lab.bench.record_log import RecordLog
from dynatui.lab.bench.sampling.log import FORMAT, Decoded, Expected, Realised, SamplingLog
from dynatui.lab.bench.sampling.request import Place
from tests.lab.bench.sampling.records import expected, header, request

TURN = Realised(
    place=Place(0, "one", 1),
    repeat=0,
    turns=(Decoded(contender="ar", tokens=8, rounds=8, decode_s=0.5, waited=None),),
)


def kept(path: Path) -> SamplingLog:
    log = RecordLog(path, FORMAT)
    log.begin(header(request()))
    log.add(expected(request(), Place(0, "one", 0), {}))
    log.add(TURN)
    return log


def test_what_was_measured_is_read_again(tmp_path: Path) -> None:
    before, again = kept(tmp_path / "log"), RecordLog(tmp_path / "log", FORMAT)
    assert (again.header, again.of(Expected), again.of(Realised)) == (
        before.header,
        before.of(Expected),
        before.of(Realised),
    )
    again.begin(header(request()))
    assert len((tmp_path / "log").read_bytes().splitlines()) == 3


@pytest.mark.parametrize("lost", [1, 20])
def test_a_line_that_was_cut_off_is_dropped_and_written_anew(lost: int, tmp_path: Path) -> None:
    path = tmp_path / "log"
    kept(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-lost])
    log = RecordLog(path, FORMAT)
    assert (len(log.of(Expected)), log.of(Realised)) == (1, [])
    log.add(TURN)
    assert path.read_bytes() == whole


def test_a_file_that_was_cut_off_in_its_first_line_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    kept(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:9])
    assert RecordLog(path, FORMAT).header is None
    kept(path)
    assert path.read_bytes() == whole


def test_a_file_of_another_measurement_is_refused_by_what_differs(tmp_path: Path) -> None:
    kept(tmp_path / "log")
    with pytest.raises(ConfigError, match=r"was started with other values of seed, k; give the same"):
        RecordLog(tmp_path / "log", FORMAT).begin(header(request(seed=1, k=1)))


@pytest.mark.parametrize(
    "content", ["a letter without end", '{"type":"begun",\n', '{"type":"begun","schema":0}\n', "\n"]
)
def test_a_file_of_another_kind_is_refused_and_left_as_it_is(content: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match="no measurement that this version can read; set --output to another file"):
        RecordLog(path, FORMAT)
    assert path.read_text(encoding="utf-8") == content


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot write .*No such file or directory; set --output to another"):
        RecordLog(tmp_path / "none" / "log", FORMAT).begin(header(request()))
