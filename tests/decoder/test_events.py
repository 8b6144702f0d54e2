"""Events survive writing and reading; a damaged file is refused with the number of the faulty line."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoder.errors import RecordingError
from decoder.events import (
    SCHEMA,
    End,
    Event,
    decode_line,
    encode,
    json_schema,
)
from tests.decoder.example_events import EVENTS, ROUND, RUN, UNKNOWN


@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
def test_an_event_survives_a_line(event: Event) -> None:
    assert decode_line(encode(event), 1) == event


@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
def test_an_event_is_one_line_with_its_type_first(event: Event) -> None:
    line = encode(event)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert next(iter(json.loads(line))) == "type"


def test_a_line_can_be_printed_on_a_terminal() -> None:
    steering = "\x1b[2J\x7f\x9b31m\u202e\u2028\ufeff\u200f ordinary: é ü 漢 😀"
    event = End(method=steering, reason="error", error=steering)
    line = encode(event)
    assert decode_line(line, 1) == event
    assert not set("\x1b\x7f\x9b\u202e\u2028\ufeff\u200f") & set(line.decode())
    assert "é ü 漢 😀" in line.decode()


def test_a_run_says_its_schema() -> None:
    assert json.loads(encode(RUN))["schema"] == SCHEMA


def test_what_a_method_cannot_know_is_null() -> None:
    written = json.loads(encode(UNKNOWN))
    keys = ("draft_s", "verify_s", "commit_s", "target_forwards", "draft_forwards")
    assert {key: written[key] for key in keys} == dict.fromkeys(keys)


def test_a_method_without_knobs_writes_none() -> None:
    assert "knobs" not in json.loads(encode(UNKNOWN))
    assert json.loads(encode(ROUND))["knobs"] == {"tau_h": 0.9, "tau_l": 0.4, "d0": 5.25}


def test_events_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        ROUND.position = 3  # type: ignore[misc]


@settings(derandomize=True, database=None, deadline=None)
@given(
    text=st.text(st.characters(exclude_categories=["Cs"])),
    t=st.floats(min_value=0, allow_nan=False, allow_infinity=False),
)
def test_any_text_and_any_time_survive(text: str, t: float) -> None:
    event = msgspec.structs.replace(ROUND, text=text, t=t)
    assert decode_line(encode(event), 1) == event


def written(event: Event, **changes: Any) -> bytes:
    return json.dumps(json.loads(encode(event)) | changes).encode()


HOSTILE = {
    "nothing": b"",
    "a blank": b"\n",
    "no JSON": b"hello\n",
    "half a line": encode(ROUND)[:40],
    "no object": b"[1, 2]",
    "null": b"null",
    "no type": b'{"method": "ar"}',
    "an unknown type": b'{"type": "rocket"}',
    "a type that is no text": b'{"type": 3}',
    "an unknown field": written(ROUND, colour="red"),
    "an unknown figure": b'{"type":"summary","methods":{"ar":{"charm":1}}}',
    "a missing field": b'{"type": "start", "method": "ar"}',
    "text for a number": written(ROUND, t="soon"),
    "a fraction for a count": written(ROUND, round=1.5),
    "an unknown reason": written(EVENTS["end"], reason="bored"),
    "a knob without a name": written(EVENTS["knob"], name=7),
    "a newer schema": written(RUN, schema=SCHEMA + 1),
    "a tree without a root": written(ROUND, tokens=[], parents=[], logprobs=[], pieces=[]),
    "a node without a probability": written(ROUND, logprobs=[0.0]),
    "a node without the draft's probability": written(ROUND, draft_logprobs=[0.0]),
    "a root with a parent": written(ROUND, parents=[0, 0, 1]),
    "a node that is its own parent": written(ROUND, parents=[-1, 1, 1]),
    "a parent that comes later": written(ROUND, parents=[-1, 2, 0]),
    "a negative parent": written(ROUND, parents=[-1, -1, 0]),
    "an accepted node that is not there": written(ROUND, accepted=[3]),
    "a negative accepted node": written(ROUND, accepted=[-1]),
    "NaN": encode(ROUND).replace(b"0.2", b"NaN"),
    "bytes that are no UTF-8": encode(ROUND).replace(b"ab", b"\xff\xfe"),
    "a lone surrogate": encode(ROUND).replace(b'"ab"', b'"\\ud800"'),
    "a number beyond all floats": encode(ROUND).replace(b"0.2", b"1e999"),
    "an abyss": b'{"type":' + b"[" * 100_000,
    "an abyss of parameters": b'{"type":"run","methods":{"ar":' + b'{"a":' * 100_000,
}


@pytest.mark.parametrize("line", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_line_is_refused_by_its_number(line: bytes) -> None:
    with pytest.raises(RecordingError, match=r"^line 17: "):
        decode_line(line, 17)


def test_a_newer_recording_tells_to_update() -> None:
    said = rf"newer dynatui wrote this line \(schema {SCHEMA + 1}, this version reads {SCHEMA}\); update dynatui"
    with pytest.raises(RecordingError, match=said):
        decode_line(written(RUN, schema=SCHEMA + 1), 1)


def test_a_newer_schema_is_named_even_when_the_rest_is_not_understood() -> None:
    with pytest.raises(RecordingError, match="newer dynatui"):
        decode_line(b'{"type":"run","schema":7,"zeal":true}', 1)


def test_the_schema_describes_every_event() -> None:
    described = json.dumps(json_schema())
    assert all(f'"{kind}"' in described for kind in ("run", "start", "round", "knob", "end", "summary"))


@pytest.mark.parametrize("field", ["round", "position", "t", "wall_s"])
def test_counts_and_times_below_zero_are_refused(field: str) -> None:
    line = json.loads(encode(ROUND)) | {field: -1}
    with pytest.raises(RecordingError, match="line 3"):
        decode_line(json.dumps(line).encode(), 3)


def test_a_recording_from_before_paths_were_told_is_read() -> None:
    fields = json.loads(encode(RUN))
    del fields["path"], fields["path_reason"]
    assert decode_line(json.dumps(fields).encode(), 1) == RUN
    assert (RUN.path, RUN.path_reason) == ("", "")
