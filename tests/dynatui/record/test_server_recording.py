"""Recordings of servers: reading to the last complete line, appending, and refusal by older and current run readers."""

import re
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoder import events as runs
from decoder.errors import RecordingError
from decoder.events import encode
from dynatui.record.reader import SERVERS, Runs, is_of_server, server_events
from dynatui.record.recording import Recorder
from dynatui.servers.attach.events import SCHEMA, Event, decode_line, is_opening
from dynatui.sources.follow import Tail
from tests.dynatui.fake_engine import story
from tests.dynatui.servers.attach.scripted_session import EVERYTHING, GAP, OPENING, SERVER, reading
from tests.dynatui.servers.attach.stand_in import promise


def reading_with(**changed: object) -> bytes:
    told = msgspec.json.decode(encode(reading(1.0)))
    told["interval"] |= changed
    return msgspec.json.encode(told) + b"\n"


BEGUN = encode(OPENING)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (encode(SERVER), "line 1: an event comes before any session"),
        (BEGUN.replace(b'"schema":%d' % SCHEMA, b'"schema":99,"more":1'), "line 1: a newer dynatui wrote this line"),
        (BEGUN + encode(reading(5.0)) + encode(reading(4.0)), "line 3: the event is at 4 s, but the event before"),
        *((BEGUN + re.sub(rb'"t":[\d.]+', b'"t":' + t, encode(GAP)), "line 2") for t in (b"1e308", b"9" * 400)),
        *((BEGUN + reading_with(acceptance_rate=rate), "line 2: ") for rate in (1.5, -0.1)),
        *((BEGUN + reading_with(drafts=drafts), "line 2: ") for drafts in (-1, 2**60)),
        (BEGUN + reading_with(tokens_per_round=1e300), "line 2: "),
        (BEGUN + reading_with(seconds="long"), "line 2: "),
        (BEGUN + reading_with(acceptance_by_position=[0.5] * 10_000), "line 2: "),
        (BEGUN + reading_with(strange=1), "line 2: "),
    ],
)
def test_what_no_session_has_written_is_refused_by_its_line(path: Path, content: bytes, why: str) -> None:
    path.write_bytes(content)
    with pytest.raises(RecordingError) as refused:
        list(server_events(path))
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


def record(path: Path, told: list[Event]) -> None:
    with Recorder(path, form=SERVERS) as recorder:
        for event in told:
            recorder.write(event)


def test_a_recording_of_runs_is_not_added_to_nor_the_other_way_round(path: Path) -> None:
    with Recorder(path) as recorder:
        for event in story():
            recorder.write(event)
    with pytest.raises(RecordingError, match="is not a recording of a server, so it is not changed"):
        Recorder(path, form=SERVERS)
    other = path.with_name("other.jsonl")
    record(other, EVERYTHING)
    with pytest.raises(RecordingError, match="is not a recording, so it is not changed"):
        Recorder(other)
    assert list(server_events(other)) == EVERYTHING


def test_readers_of_runs_say_what_the_file_is_and_older_ones_that_a_newer_dynatui_wrote_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(path, EVERYTHING)
    with pytest.raises(RecordingError, match=r"line 1 begins a recording of a server, .* dynatui replay FILE"):
        Runs(path)
    with closing(Tail(path)) as tail, pytest.raises(RecordingError, match="recording of a server"):
        tail.take(1.0)
    monkeypatch.setattr(runs, "SCHEMA", 2)  # schema of the last release without servers
    with pytest.raises(RecordingError, match="a newer dynatui wrote this line"):
        runs.decode_line(encode(OPENING), 1)


NEW_IN_5 = (
    *(b'"accepted_by_position":[],', b'"drafted_by_position":[],', b'"load":null,'),
    *(b',"engine_steps":null', b',"token_latency_s":null', b',"step_s":null'),
)


@pytest.mark.parametrize(("schema", "without"), [(3, (b',"drafting":null', b',"wasted":null')), (4, ())])
def test_recordings_of_earlier_schemas_are_read(path: Path, schema: int, without: tuple[bytes, ...]) -> None:
    old = encode(reading(1.0))
    for name in (*NEW_IN_5, *without):
        assert name in old
        old = old.replace(name, b"")
    path.write_bytes(encode(OPENING).replace(b'"schema":%d' % SCHEMA, b'"schema":%d' % schema) + old)
    assert list(server_events(path))[1:] == [reading(1.0)]


@pytest.mark.parametrize(
    ("old", "new"),
    [(b'"draft":"mine"', b'"draft":"x"'), (b"[0.75,0.6]", b"[0.75]"), (b"[0.75,0.6]", b"[0.75,1.6]")],
    ids=["a draft that is not there", "too few rates", "no rate"],
)
def test_a_promise_that_cannot_be_is_refused(path: Path, old: bytes, new: bytes) -> None:
    path.write_bytes(BEGUN + encode(promise()).replace(old, new))
    with pytest.raises(RecordingError, match="line 2: "):
        list(server_events(path))


@given(st.binary(max_size=200))
def test_no_bytes_are_more_than_an_event_or_one_line_of_error(line: bytes) -> None:
    assert is_opening(line) in (True, False)
    try:
        decode_line(line, 1)
    except RecordingError:
        pass
    else:
        pytest.fail("random bytes are no event")


def test_a_recording_of_a_server_is_told_apart_from_other_files(tmp_path: Path) -> None:
    record(tmp_path / "server", EVERYTHING)
    (tmp_path / "empty").touch()
    assert is_of_server(tmp_path / "server")
    assert not any(is_of_server(tmp_path / name) for name in (".", "none", "empty"))
