"""Events survive writing and reading with any text and any finite numbers; a damaged file is refused with the number of
the faulty line, and recordings of schema 1 are read like current ones.
"""

import json
import math
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, cast, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from decoder.analysis.metrics import fold
from decoder.errors import RecordingError
from decoder.events import (
    SCHEMA,
    Draws,
    End,
    Event,
    Expected,
    Figures,
    Knob,
    Knobs,
    Round,
    Run,
    Start,
    Summary,
    Upgrade,
    Verification,
    decode_line,
    encode,
    json_schema,
)
from decoder.json_values import LARGEST, leaves, too_large
from decoder.methods.auto import Auto
from tests.decoder.property_settings import examples

RUN = Run(
    version="0.1.0", started_at="2026-01-01T00:00:00Z", target="t", draft="d", device="cpu", dtype="float32", seed=0,
    prompt='quoted "text"\nand \u2028 lines 🌳', prompt_tokens=[1, 2], max_new_tokens=8,
    methods={"dynatree": {"branching": [1, 2, 3], "tau_h": 0.9}, "ar": {}},
)  # fmt: skip
ROUND = Round(
    method="dynatree", round=3, position=7, t=0.1, wall_s=0.2, draft_s=0.01, verify_s=0.02, commit_s=0.03,
    target_forwards=1, draft_forwards=2, knobs=Knobs(0.9, 0.4, 5.25), tokens=[4, 5, 6], parents=[-1, 0, 1],
    logprobs=[0.0, -0.1, -2.5], pieces=["a", "\x1b[31m", "�"], accepted=[1], committed=[5, 8], text="ab",
)  # fmt: skip
UNKNOWN = Round(
    method="hf", round=0, position=0, t=0.0, wall_s=0.2, draft_s=None, verify_s=None, commit_s=None,
    target_forwards=None, draft_forwards=None, tokens=[4], parents=[-1], logprobs=[0.0], pieces=["a"], accepted=[],
    committed=[5], text="",
)  # fmt: skip
EVENTS: dict[str, Event] = {
    "run": RUN,
    "start": Start(method="ar", prefill_s=0.5),
    "round": ROUND,
    "round of hf": UNKNOWN,
    "knob": Knob(method="dynatree", round=2, name="tau_h", old=0.9, new=0.85, source="user"),
    "end": End(method="ar", reason="error", error="out of memory", peak_bytes=12),
    "summary": Summary(methods={"ar": Figures(rounds=2, near_tie=False, tokens_per_second=1 / 3)}),
}


@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
def test_an_event_survives_a_line_with_its_type_first(event: Event) -> None:
    line = encode(event)
    assert decode_line(line, 1) == event
    assert (line.count(b"\n"), line[-1:]) == (1, b"\n")
    assert next(iter(json.loads(line))) == "type"


def test_a_line_can_be_printed_on_a_terminal() -> None:
    steering = "\x1b[2J\x7f\x9b31m\u202e\u2028\ufeff\u200f ordinary: é ü 漢 😀"
    event = End(method=steering, reason="error", error=steering)
    line = encode(event)
    assert decode_line(line, 1) == event
    assert not set("\x1b\x7f\x9b\u202e\u2028\ufeff\u200f") & set(line.decode())
    assert "é ü 漢 😀" in line.decode()


def test_a_run_says_its_schema_and_a_round_what_is_known() -> None:
    assert json.loads(encode(RUN))["schema"] == SCHEMA
    unknown = json.loads(encode(UNKNOWN))
    keys = ("draft_s", "verify_s", "commit_s", "target_forwards", "draft_forwards")
    assert {key: unknown[key] for key in keys} == dict.fromkeys(keys)
    assert "knobs" not in unknown
    assert json.loads(encode(ROUND))["knobs"] == {"tau_h": 0.9, "tau_l": 0.4, "d0": 5.25}


def test_events_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        ROUND.position = 3  # type: ignore[misc]


@examples(100)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_survives(text: str) -> None:
    event = msgspec.structs.replace(ROUND, text=text)
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
    **{f"{field} below zero": written(ROUND, **{field: -1}) for field in ("round", "position", "t", "wall_s")},
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


def test_a_recording_from_before_paths_were_told_is_read() -> None:
    fields = json.loads(encode(RUN))
    del fields["path"], fields["path_reason"]
    assert decode_line(json.dumps(fields).encode(), 1) == RUN
    assert (RUN.path, RUN.path_reason) == ("", "")


# Numbers

FLOATS = [name for name, type_ in get_type_hints(Figures).items() if type_ in (float, float | None)]
VERIFICATION = Verification(
    surprise=0.1, surprise_variance=0.2, top1=0.3, top1_variance=0.4, predicted_tokens=1.5, reach=[1.0, 0.5],
    path=[Draws(count=1, accepted=True, l1=0.5, acceptance=0.5, bound=0.6)],
)  # fmt: skip
FULL: dict[str, Event] = {
    **EVENTS,
    "run": msgspec.structs.replace(RUN, expected=Expected(target_read_s=0.1)),
    "round": msgspec.structs.replace(
        ROUND, draft_logprobs=[0.0, -0.2, -1.5], verification=VERIFICATION, stalled_s=0.1, waited_s=0.2, wall_s=0.3
    ),
    "summary": Summary(methods={"ar": msgspec.structs.replace(Figures(), **dict.fromkeys(FLOATS, 1.5))}),
}
BAD = (math.nan, math.inf, -math.inf)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to all floats in decoded JSON."""
    if isinstance(value, float):
        yield path
    elif isinstance(value, dict | list):
        for name, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(part, (*path, name))


def changed(event: Event, path: tuple[Any, ...], number: float) -> Event:
    """The event with another float at a path, unchecked."""
    whole: Any = deepcopy(event)
    *above, last = path
    part = whole
    for name in above:
        part = getattr(part, name) if isinstance(part, msgspec.Struct) else part[name]
    if isinstance(part, msgspec.Struct):
        structs.force_setattr(part, last, number)
    else:
        part[last] = number
    return cast("Event", whole)


PLACES = [(event, path) for event in FULL.values() for path in places(msgspec.to_builtins(event))]


def test_all_floats_of_events_are_tried() -> None:
    names = {path[-1] for _, path in PLACES}
    assert {"t", "surprise", "l1", "tau_h", "prefill_s", "target_read_s", "old", "temperature", "decode_s"} <= names
    assert len(PLACES) > 50


@examples(200)
@given(place=st.sampled_from(PLACES), number=st.floats() | st.sampled_from((*BAD, 5e-324, 1.7e308, -0.0)))
def test_an_event_with_any_float_is_read_as_it_was_written_or_is_not_written(
    place: tuple[Event, tuple[Any, ...]], number: float
) -> None:
    event, path = place
    if math.isfinite(number):
        given = changed(event, path, abs(number) or 1.0)  # durations are 0 or more
        assert decode_line(encode(given), 1) == given
    else:
        with pytest.raises(ValueError, match="not finite"):
            encode(changed(event, path, number))


def test_a_parameter_of_a_method_is_finite() -> None:
    with pytest.raises(ValueError, match="not finite"):
        encode(msgspec.structs.replace(RUN, methods={"dynatree": {"tau_h": math.inf}}))


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-LARGEST, LARGEST) | st.floats(-1e19, 1e19) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@examples(40)
@given(JSON, st.sampled_from([10**400, -(10**400), 1e308, LARGEST + 1, math.nan, math.inf]))
def test_a_number_beyond_the_range_is_found_wherever_it_is_and_no_other(value: object, number: float) -> None:
    assert too_large(value) is None
    assert too_large({"a": [value, {"b": number}]}) is number


def test_keys_and_values_of_any_json_are_leaves_however_deep_they_are() -> None:
    assert sorted(map(str, leaves({"a": [1, {"b": "c"}], "d": None}))) == ["1", "None", "a", "b", "c", "d"]
    for depth in (10, 900):
        assert list(leaves(json.loads("[" * depth + "1" + "]" * depth))) == [1]


TRACE = Path(__file__).parents[1] / "traces" / "schema-1-auto.jsonl"
"""Recorded with the last version of schema 1: DynaTree with an automatic number of nodes, ar and Algorithm 1."""


@pytest.fixture
def trace() -> list[Event]:
    return [decode_line(line, number) for number, line in enumerate(TRACE.read_bytes().splitlines(keepends=True), 1)]


def upgraded(events: list[Event]) -> list[Event]:
    upgrade = Upgrade()
    return [upgrade.event(event) for event in events]


def first_run(events: list[Event]) -> Run:
    return next(event for event in events if isinstance(event, Run))


def test_an_automatic_dynatree_is_told_as_auto_in_every_event(trace: list[Event]) -> None:
    told = upgraded(trace)
    run = first_run(told)
    assert (run.schema, list(run.methods)) == (SCHEMA, ["auto", "ar", "alg1"])
    bounds = {**run.methods["auto"], "branching": tuple(run.methods["auto"]["branching"])}
    assert Auto(**bounds) == Auto(history=True)
    assert len(told) == len(trace)
    assert {event.method for event in told if isinstance(event, Start | Round | Knob)} == {"auto", "ar", "alg1"}
    (summary,) = [event for event in told if isinstance(event, Summary)]
    assert list(summary.methods) == ["auto", "ar", "alg1"]
    assert {event.limited_by for event in told if isinstance(event, Round)} == {None}, "it did not record this"


def test_no_figure_changes(trace: list[Event]) -> None:
    before, after = fold(trace).figures(), fold(upgraded(trace)).figures()
    assert after == {"auto" if name == "dynatree" else name: figures for name, figures in before.items()}


@pytest.mark.parametrize("n_max", [64, None, False, "0", [0]])
def test_a_dynatree_with_a_number_of_nodes_stays_dynatree(trace: list[Event], n_max: Any) -> None:
    run = first_run(trace)
    numbered = structs.replace(run, methods={"dynatree": {**run.methods["dynatree"], "n_max": n_max}})
    assert upgraded([numbered]) == [structs.replace(numbered, schema=SCHEMA)]


def test_each_run_of_a_file_is_read_by_its_own_schema(trace: list[Event]) -> None:
    old = first_run(trace)
    new = structs.replace(old, schema=SCHEMA, methods={"dynatree": {}, "auto": {}})
    start = Start(method="dynatree", prefill_s=0.0)
    assert upgraded([old, start, new, start])[1:] == [structs.replace(start, method="auto"), new, start]
