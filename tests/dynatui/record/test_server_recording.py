"""Recordings of servers: reading to the last complete line, appending, and refusal by older and current run readers."""

import re
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from decoder import events as runs
from decoder.errors import RecordingError
from decoder.events import encode
from dynatui.attach.events import SCHEMA, Event, decode_line, is_opening
from dynatui.record.reader import Runs
from dynatui.record.recording import Recorder
from dynatui.record.server_recording import SERVERS, events, is_of_server
from dynatui.sources.follow import Tail
from tests.dynatui.attach.scripted_session import DRAFTING, GAP, OPENING, SERVER, WASTED, reading, session
from tests.dynatui.fake_engine import story

STORY: list[Event] = [
    *session(3),
    GAP,
    reading(62.0, restarted=True),
    structs.replace(reading(63.0), wasted=WASTED, drafting=DRAFTING),
]


def record(path: Path, told: list[Event]) -> None:
    with Recorder(path, form=SERVERS) as recorder:
        for event in told:
            recorder.write(event)


def refusal(path: Path) -> str:
    with pytest.raises(RecordingError) as refused:
        list(events(path))
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_what_was_written_is_read_back(path: Path) -> None:
    record(path, STORY)
    assert list(events(path)) == STORY
    assert is_of_server(path)


@pytest.mark.parametrize("number", [b"1e308", b"9" * 400])
def test_a_time_beyond_its_range_is_refused(path: Path, number: bytes) -> None:
    record(path, STORY[:1])
    path.write_bytes(path.read_bytes() + re.sub(rb'"t":[\d.]+', b'"t":' + number, encode(GAP)))
    assert "line 2" in refusal(path)


def test_a_second_session_follows_the_first(path: Path) -> None:
    record(path, STORY)
    record(path, STORY)
    assert list(events(path)) == STORY * 2


@pytest.mark.parametrize("cut", [1, 2, 40])
def test_a_line_that_a_crash_tore_is_passed_over_and_cut_off_by_the_next_session(path: Path, cut: int) -> None:
    record(path, STORY)
    path.write_bytes(path.read_bytes()[: -cut - 1])
    assert list(events(path)) == STORY[:-1]
    record(path, STORY)
    assert list(events(path)) == STORY[:-1] + STORY


def test_a_last_line_that_lacks_only_its_end_counts(path: Path) -> None:
    record(path, STORY)
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    assert list(events(path)) == STORY


def test_a_recording_of_runs_is_not_added_to_nor_the_other_way_round(path: Path) -> None:
    with Recorder(path) as recorder:
        for event in story():
            recorder.write(event)
    with pytest.raises(RecordingError, match="is not a recording of a server, so it is not changed"):
        Recorder(path, form=SERVERS)
    other = path.with_name("other.jsonl")
    record(other, STORY)
    with pytest.raises(RecordingError, match="is not a recording, so it is not changed"):
        Recorder(other)
    assert list(events(other)) == STORY


def test_readers_of_runs_say_what_the_file_is(path: Path) -> None:
    record(path, STORY)
    with pytest.raises(RecordingError, match=r"line 1 begins a recording of a server, .* dynatui replay FILE"):
        Runs(path)
    with closing(Tail(path)) as tail, pytest.raises(RecordingError, match="recording of a server"):
        tail.take(1.0)


def test_readers_that_know_runs_alone_say_that_a_newer_dynatui_wrote_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "SCHEMA", 2)  # schema of the last release without servers
    with pytest.raises(RecordingError, match="a newer dynatui wrote this line"):
        runs.decode_line(encode(OPENING), 1)


def test_a_recording_of_before_wasted_drafts_were_told_is_read(path: Path) -> None:
    old = encode(reading(1.0)).replace(b',"drafting":null,"wasted":null', b"")
    assert b"wasted" not in old
    path.write_bytes(encode(OPENING).replace(b'"schema":%d' % SCHEMA, b'"schema":3') + old)
    assert list(events(path))[1:] == [reading(1.0)]


def test_a_newer_schema_is_refused(path: Path) -> None:
    path.write_bytes(encode(OPENING).replace(b'"schema":%d' % SCHEMA, b'"schema":99,"more":1'))
    assert "line 1: a newer dynatui wrote this line (schema 99" in refusal(path)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([SERVER], "line 1: an event comes before any session"),
        ([OPENING, reading(5.0), reading(4.0)], "line 3: the event is at 4 s, but the event before it is at 5 s"),
    ],
)
def test_what_no_session_has_written_is_refused_by_its_line(path: Path, lines: list[Event], why: str) -> None:
    path.write_bytes(b"".join(map(encode, lines)))
    assert why in refusal(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("acceptance_rate", 1.5),
        ("acceptance_rate", -0.1),
        ("tokens_per_round", 1e300),
        ("drafts", -1),
        ("drafts", 2**60),
        ("seconds", "long"),
        ("acceptance_by_position", [0.5] * 10_000),
        ("strange", 1),
    ],
)
def test_figures_beyond_their_bounds_are_refused(path: Path, field: str, value: object) -> None:
    told = msgspec.json.decode(encode(reading(1.0)))
    told["interval"][field] = value
    path.write_bytes(encode(OPENING) + msgspec.json.encode(told) + b"\n")
    assert "line 2: " in refusal(path)


@given(st.binary(max_size=200))
def test_no_bytes_are_more_than_an_event_or_one_line_of_error(line: bytes) -> None:
    assert is_opening(line) in (True, False)
    try:
        decode_line(line, 1)
    except RecordingError:
        pass
    else:
        pytest.fail("random bytes are no event")


def test_what_is_no_recording_of_a_server_is_told_apart(tmp_path: Path) -> None:
    assert not is_of_server(tmp_path)
    assert not is_of_server(tmp_path / "none")
    empty = tmp_path / "empty"
    empty.touch()
    assert not is_of_server(empty)
