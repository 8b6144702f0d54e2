"""Files that no run could have written are refused in one clear line or shown without harm: no crash and no hang.

Each hostile file is read as by `dynatui replay`. Accepted events are folded and drawn at three sizes as by the screen,
played, searched, and printed as by a headless replay.
"""

import gzip
import json
import os
import resource
import subprocess
import sys
import time
from contextlib import closing
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from decoder.errors import RecordingError
from decoder.events import SCHEMA, Event, Round, encode
from dynatui.cli import headless
from dynatui.record import checks
from dynatui.record.cast import moments
from dynatui.record.export import files_of
from dynatui.record.reader import read_events
from dynatui.record.transcript import Transcript
from dynatui.render import cards, curves, race, status, tree, versus
from dynatui.render.scene import Scene
from dynatui.render.text import TextPanel
from dynatui.screen.run import lines
from dynatui.sources.follow import Tail
from dynatui.sources.playback import Lockstep, Side, TraceSource
from dynatui.state.run_state import RunState, apply
from dynatui.state.session_log import SessionLog
from tests.dynatui.scripted_runs import HOSTILE, plain_round, run, runs_of, story, tree_round

Json = dict[str, Any]


def as_json(event: Event) -> Json:
    content: Json = json.loads(encode(event))
    return content


def line(event: Event, **changes: Any) -> bytes:
    """The event as a line of JSON with changed fields, which may be invalid."""
    return json.dumps(as_json(event) | changes).encode() + b"\n"


RUN, ROUND, PLAIN, SUMMARY = run(), tree_round(0), plain_round("ar", 0), story()[-1]
START, KNOB, END = story()[1], story()[9], story()[-3]
DEEP = b"[" * 50_000 + b"]" * 50_000
NONSENSE = {"window": -3, "d_max": "x", "history": [], "branching": {"a": [1e19]}, "d0": 1e19, "tau_h": None}
HUGE = 10**400


def node_lists(count: int) -> Json:
    parents = list(range(-1, count - 1))
    return {"tokens": [1] * count, "parents": parents, "logprobs": [0.0] * count, "pieces": ["x"] * count}


REFUSED: dict[str, tuple[list[bytes], str]] = {
    # the event `run`
    "no methods": ([line(RUN, methods={})], "a run has 0 methods"),
    "a flood of methods": ([line(RUN, methods={str(n): {} for n in range(10**5)})], "a run has 100000 methods"),
    "methods that are a list": ([line(RUN, methods=["ar"])], "Expected `object`"),
    "parameters that are a number": ([line(RUN, methods={"ar": 5})], "Expected `object`"),
    "parameters nested without end": ([encode(RUN).replace(b'"d_max":8', b'"d_max":' + DEEP)], "line 1"),
    "a method's name of a megabyte": ([line(RUN, methods={"x" * 2**20: {}})], "a name has 1048576 characters"),
    "a model's name of a megabyte": ([line(RUN, target="x" * 2**20)], "a name has 1048576 characters"),
    "a prompt of ten megabytes": ([line(RUN, prompt="x" * 10**7)], "prompt has 10000000 characters"),
    "no prompt": ([encode(RUN).replace(b'"prompt":"Once upon",', b"")], "missing required field `prompt`"),
    "a prompt of bytes": ([line(RUN, prompt=[1, 2])], "Expected `str`"),
    "a lone surrogate": ([encode(RUN).replace(b"Once upon", b"\\ud800")], "line 1"),
    "negative token numbers": ([line(RUN, prompt_tokens=[-1])], "Expected `int` >= 0"),
    "a temperature below 0": ([line(RUN, temperature=-1)], "temperature is -1"),
    "a temperature beyond all bounds": ([line(RUN, temperature=1e300)], "temperature is 1e+300"),
    "more than all tokens": ([line(RUN, top_p=7)], "top_p is 7"),
    # the order of events
    "a round before any run": ([encode(ROUND)], "an event comes before any run"),
    "a summary before any run": ([encode(SUMMARY)], "an event comes before any run"),
    "a stranger's round": ([encode(RUN), line(ROUND, method="fixed")], "fixed is not a method of this run"),
    "a stranger's summary": ([encode(RUN), line(SUMMARY, methods={"x": {}})], "x is not a method of this run"),
    "a round that is missing": (
        [encode(RUN), line(ROUND, round=1, position=3)],
        "dynatree has round 1 in the place of round 0",
    ),
    "a round that comes twice": (
        [encode(RUN), encode(ROUND), encode(ROUND)],
        "dynatree has round 0 in the place of round 1",
    ),
    "a round without end": ([encode(RUN), line(ROUND, round=2**52)], "in the place of round 0"),
    "a position ahead": (
        [encode(RUN), line(ROUND, position=7)],
        "has position 7, but the rounds before it have 0 tokens",
    ),
    "time that runs back": ([encode(RUN), line(ROUND, t=9), line(tree_round(1), t=1)], "ends at t = 1, but began"),
    # numbers
    "not a number": ([encode(RUN), line(ROUND, t=float("nan"))], "malformed"),
    "infinity": ([encode(RUN), line(ROUND, t=float("inf"))], "malformed"),
    "a number beyond all bounds": ([encode(RUN), encode(ROUND).replace(b'"t":0.02', b'"t":1e999')], "out of range"),
    "a time that overflows sums": ([encode(RUN), line(ROUND, t=1e308)], "a time is 1e+308"),
    "a time that overflows ratios": ([encode(RUN), line(ROUND, t=5e-324)], "ends at t = 4.94066e-324"),
    "negative time": ([encode(RUN), line(ROUND, wall_s=-1.0)], "Expected `float` >= 0"),
    "negative drafting": ([encode(RUN), line(ROUND, draft_s=-1e300)], "a time is -1e+300"),
    "a huge knob": ([encode(RUN), line(ROUND, knobs={"tau_h": 1, "tau_l": 1, "d0": 1e308})], "a knob is 1e+308"),
    "a huge turn": ([encode(RUN), line(KNOB, new=-1e308)], "tau_h is -1e+308"),
    "a turn of no knob": ([encode(RUN), line(KNOB, name="volume")], "volume is no knob"),
    "a tree that no knob has limited": ([encode(RUN), line(ROUND, limited_by="volume")], "volume is no knob"),
    "an impossible probability of the draft's own": (
        [encode(RUN), line(ROUND, draft_logprobs=[0, 900, 0, 0, 0, 0])],
        "a log-probability is 900",
    ),
    "an impossible probability": (
        [encode(RUN), line(ROUND, logprobs=[0, 900, 0, 0, 0, 0])],
        "a log-probability is 900",
    ),
    "a huge prefill": ([encode(RUN), line(START, prefill_s=1e300)], "prefill_s is 1e+300"),
    "a huge figure": ([encode(RUN), line(SUMMARY, methods={"ar": {"speedup": 1e300}})], "a figure is 1e+300"),
    "a figure that is a text": (
        [encode(RUN), line(SUMMARY, methods={"ar": {"speedup": "x"}})],
        "Expected `float | null`",
    ),
    "a number of 5000 digits": (
        [encode(RUN), encode(ROUND).replace(b'"round":0', b'"round":' + b"9" * 5000)],
        "line 2",
    ),
    "a number as text": ([encode(RUN), line(ROUND, round="0")], "Expected `int`"),
    "a parameter of 400 digits": (
        [line(RUN, methods={"dynatree": {"window": HUGE}})],
        "a parameter is a number of 401 digits, but must be",
    ),
    "a parameter of 400 digits in a list": ([line(RUN, methods={"ar": {"x": [{"y": [-HUGE]}]}})], "of 401 digits"),
    "a parameter beyond all bounds": ([line(RUN, methods={"ar": {"x": 1e300}})], "a parameter is 1e+300"),
    "a seed of 400 digits": ([line(RUN, seed=HUGE)], "seed is a number of 401 digits"),
    "a schema of 400 digits": ([line(RUN, schema=HUGE)], "schema a number of 401 digits"),
    "a figure of 400 digits": ([encode(RUN), line(SUMMARY, methods={"ar": {"rounds": HUGE}})], "of 401 digits"),
    "memory of 400 digits": ([encode(RUN), line(END, peak_bytes=HUGE)], "peak_bytes is a number of 401 digits"),
    "a bound of the time that overflows sums": ([line(RUN, expected={"target_read_s": 1e308})], "a time is 1e+308"),
    # trees
    "no root": ([encode(RUN), line(ROUND, tokens=[], parents=[], logprobs=[], pieces=[])], "the root included"),
    "lists of different lengths": ([encode(RUN), line(ROUND, tokens=[1])], "one entry per node"),
    "a parent of itself": ([encode(RUN), line(ROUND, parents=[-1, 1, 0, 1, 1, 3])], "an earlier node"),
    "a parent that is not there": ([encode(RUN), line(ROUND, parents=[-1, 99, 0, 1, 1, 3])], "an earlier node"),
    "two roots": ([encode(RUN), line(ROUND, parents=[-1, -1, 0, 1, 1, 3])], "an earlier node"),
    "accepting what is not there": ([encode(RUN), line(ROUND, accepted=[1, 99])], "a node that is not in the tree"),
    "accepting the root": ([encode(RUN), line(ROUND, accepted=[0, 1, 3])], "do not form a path from the root"),
    "accepting siblings": ([encode(RUN), line(ROUND, accepted=[1, 2])], "do not form a path from the root"),
    "accepting a node twice": ([encode(RUN), line(ROUND, accepted=[1, 3, 3])], "do not form a path from the root"),
    "accepting a million nodes": ([encode(RUN), line(ROUND, accepted=[1] * 10**6)], "do not form a path from the root"),
    "other tokens than the accepted": ([encode(RUN), line(ROUND, committed=[5, 6, 7])], "the committed tokens are not"),
    "too many tokens": ([encode(RUN), line(ROUND, committed=[11, 13, 1, 2])], "the committed tokens are not"),
    "a tree as large as the memory": (
        [encode(RUN), line(ROUND, **node_lists(checks.MOST_NODES + 1))],
        "a tree has 65537 nodes",
    ),
    # texts
    "a piece of two megabytes": ([encode(RUN), line(PLAIN, pieces=["x" * 2**21])], "a piece has 2097152 characters"),
    "a text of two megabytes": ([encode(RUN), line(ROUND, text="x" * 2**21)], "text has 2097152 characters"),
    "an error of two megabytes": ([encode(RUN), line(END, error="x" * 2**21)], "error has 2097152 characters"),
    "a path of two kilobytes": ([line(RUN, path="x" * 2**11)], "a name has 2048 characters"),
    "a reason of two megabytes": ([line(RUN, path_reason="x" * 2**21)], "path_reason has 2097152 characters"),
    "a parameter of two megabytes": ([line(RUN, methods={"ar": {"x": "y" * 2**21}})], "a parameter has 2097152 char"),
    "a parameter's name of two megabytes": ([line(RUN, methods={"ar": {"y" * 2**21: 1}})], "a parameter has 2097152"),
    "a flood of parameters": ([line(RUN, methods={"ar": {"x": [0] * 10**6}})], "more than 4096 parameters"),
    "a verifier of two megabytes": ([line(RUN, verifier="x" * 2**21)], "a name has 2097152 characters"),
    "a way of drafting of two megabytes": ([line(RUN, drafting="x" * 2**21)], "a name has 2097152 characters"),
    "a field of two megabytes": ([encode(RUN), line(ROUND, **{"x" * 2**21: 1})], "unknown field"),
    "a field of two megabytes in words": ([encode(RUN), line(ROUND, **{"x y " * 2**19: 1})], "unknown field"),
    "a type of two megabytes in words": ([encode(RUN), line(ROUND, type="x y " * 2**19)], "Invalid value"),
    # the file
    "an unknown field": ([encode(RUN), line(ROUND, mood="bad")], "unknown field `mood`"),
    "an unknown event": ([encode(RUN), b'{"type":"dance"}\n'], "Invalid value 'dance'"),
    "a blank object": ([b"{}\n"], "line 1"),
    "two objects in a line": ([encode(RUN)[:-1] + encode(RUN)], "line 1"),
    "zeros": ([b"\x00" * 100_000 + b"\n"], "line 1"),
    "no text": ([bytes(range(256)) * 10], "line 1"),
    "nothing": ([b""], "holds no complete event"),
    "UTF-16": ([encode(RUN).decode().encode("utf-16")], "it is UTF-16 text; convert it with iconv -f UTF-16 "),
    "UTF-16 without a mark": ([encode(RUN).decode().encode("utf-16-be")], "it is UTF-16BE text; convert it with iconv"),
    "UTF-32": ([encode(RUN).decode().encode("utf-32")], "it is UTF-32 text; convert it with iconv -f UTF-32 "),
    "a byte order mark": ([b"\xef\xbb\xbf", encode(RUN)], "it begins with a byte order mark; remove it with sed"),
    "a compressed file": ([gzip.compress(encode(RUN) + encode(ROUND))], "it is compressed; unpack it with gunzip"),
    "a compressed short file": ([gzip.compress(b"")], "it is compressed; unpack it with gunzip"),
    "a newer schema": ([line(RUN, schema=SCHEMA + 1)], f"schema {SCHEMA + 1}, this version reads {SCHEMA}"),
}

SHOWN: dict[str, list[bytes]] = {
    "blank lines": [b" \n\n", encode(RUN), b"\n", encode(ROUND), b"\r\n", b"\n", b"  "],
    "a blank line before another run": [encode(RUN), encode(ROUND), b"\n", encode(RUN), encode(ROUND), b"\n"],
    "a run alone": [encode(RUN)],
    "the same run twice": [encode(RUN), encode(RUN)],
    "a run that begins in the middle of another": [encode(RUN), encode(ROUND), encode(RUN), encode(ROUND)],
    "a torn last line": [encode(RUN), encode(ROUND), encode(tree_round(1))[:-9]],
    "an end before any round": [encode(RUN), encode(END), encode(SUMMARY), encode(ROUND)],
    "a summary of nobody": [encode(RUN), encode(ROUND), line(SUMMARY, methods={})],
    "a summary of nothing": [encode(RUN), line(SUMMARY, methods={"ar": {}, "dynatree": {}})],
    "a summary that lies": [encode(RUN), line(SUMMARY, methods={"dynatree": {"rounds": -5, "committed": 10**15}})],
    "parameters of nonsense": [line(RUN, methods={"dynatree": NONSENSE}), encode(ROUND), encode(KNOB)],
    "a huge window and depth": [line(RUN, methods={"dynatree": {"window": 10**18, "d_max": 10**18}}), encode(ROUND)],
    "no prompt and no room": [line(RUN, prompt="", prompt_tokens=[], max_new_tokens=0), encode(ROUND)],
    "room without end": [line(RUN, max_new_tokens=2**53), encode(ROUND)],
    "names full of escapes": [
        line(RUN, methods={HOSTILE: {}, "": {}}, target=HOSTILE, draft=HOSTILE, device=HOSTILE, prompt=HOSTILE),
        line(ROUND, method=HOSTILE, pieces=[HOSTILE] * 6, text=HOSTILE),
        line(END, method=HOSTILE, reason="error", error=HOSTILE),
    ],
    "knobs and limits of a method that is not known here": [
        line(RUN, methods={"strange": {"d0": 2.0}}),
        line(ROUND, method="strange", limited_by=HOSTILE),
        line(KNOB, method="strange", name=HOSTILE),
    ],
    "names that are the same once cleaned": [
        line(RUN, methods={"a\x1b": {}, "a\u241b": {}}),
        line(ROUND, method="a\x1b"),
        line(ROUND, method="a\u241b"),
    ],
    "a round that takes no time": [encode(RUN), line(ROUND, t=0, wall_s=0), line(tree_round(1), t=0, wall_s=0)],
    "a round that takes years": [encode(RUN), line(ROUND, t=9e8, wall_s=9e8, draft_s=9e8, verify_s=9e8, commit_s=9e8)],
    "rounds that commit nothing": [encode(RUN), line(ROUND, committed=[], text=""), line(tree_round(1), position=0)],
    "knobs beyond all bounds": [
        encode(RUN),
        line(ROUND, knobs={"tau_h": -9e8, "tau_l": 9e8, "d0": -9e8}),
        line(KNOB, old=9e8, new=-9e8),
        line(KNOB, name="history", new=17),
    ],
    "a turn in a round that never comes": [encode(RUN), encode(ROUND), line(KNOB, round=2**53)],
    "impossible improbabilities": [encode(RUN), line(ROUND, logprobs=[-9e8] * 6)],
    "a chain of five thousand": [
        encode(RUN),
        line(ROUND, **node_lists(5000), accepted=list(range(1, 5000)), committed=[1] * 5000),
    ],
    "five thousand siblings": [
        encode(RUN),
        line(ROUND, **(node_lists(5000) | {"parents": [-1] + [0] * 4999}), accepted=[7], committed=[1, 2]),
    ],
    "long pieces": [encode(RUN), line(ROUND, pieces=["漢" * 4096] * 6, text="漢" * 8_000)],
    "tokens beyond any vocabulary": [encode(RUN), line(ROUND, tokens=[2**53] * 6, committed=[2**53, 2**53, 0])],
    "a draft that is not told": [
        encode(RUN),
        line(ROUND, draft_forwards=None, draft_s=None, accepted=[], committed=[1] * 50),
    ],
    "many short runs": [encode(RUN) * 2000],
}


def write(path: Path, parts: list[bytes]) -> None:
    path.write_bytes(b"".join(parts))


@pytest.mark.parametrize(("parts", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_what_no_run_could_have_written_is_refused_in_one_line(path: Path, parts: list[bytes], reason: str) -> None:
    write(path, parts)
    with pytest.raises(RecordingError) as caught:
        read_events(path)
    said = str(caught.value)
    assert said.startswith(str(path))
    assert reason in said
    assert "\n" not in said
    assert len(said) < len(str(path)) + 1500
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("parts", SHOWN.values(), ids=SHOWN.keys())
def test_what_is_odd_but_possible_is_shown_without_harm(path: Path, parts: list[bytes]) -> None:
    write(path, parts)
    events = read_events(path)
    began = time.thread_time()
    show(events)
    assert time.thread_time() - began < 8.0


def show(events: list[Event]) -> None:
    """Does everything that the program does with a recording, except for opening a screen."""
    state, log = RunState(), SessionLog()
    for event in events:
        state = apply(state, event)
        log = log.apply(event, state)
    for size in ((40, 10), (80, 24), (200, 60)):
        drawn = [paint(Scene(state), *size) for paint in PAINTERS]
        told = "".join(text for rows in drawn for row in rows for text, _ in row)
        assert not set("\x1b\x07\x9b\u202e\r\x7f\n") & set(told)
    assert not set("\x1b\x07\x9b\u202e\r\x7f") & set("\n".join(lines(log)))
    headless.replay_events(events, Transcript(StringIO(), StringIO(), as_json=True))
    assert all(make() is not None for make in files_of(events, "", "").values())
    times = [moment.seconds for moment in moments(events, RunState())]
    assert times == sorted(times)
    play(events)


PAINTERS = (cards.cards, tree.tree, curves.acceptance, curves.depth, race.race, status.status, TextPanel())


def play(events: list[Event]) -> None:
    source = TraceSource(runs_of(events))
    source.advance(0.0)
    watched = next((event.method for event in events if isinstance(event, Round)), "")
    source.seek(1e9)
    source.seek_round(watched, 1)
    source.go(1)
    source.play(1e12)
    both = Lockstep(Side("a", runs_of(events)), Side("b", runs_of(story())))
    for seconds in (0.0, 1e9, 0.01):
        both.seek(seconds)
        versus.table(both.states(), (80, 7))


@pytest.mark.parametrize("parts", [parts for parts, _ in REFUSED.values()], ids=REFUSED.keys())
def test_a_monitor_that_follows_refuses_the_same(path: Path, parts: list[bytes]) -> None:
    write(path, parts)

    def follow() -> None:
        with closing(Tail(path)) as tail:
            tail.take(60.0)
            tail.take(60.0)

    if not path.read_bytes().count(b"\n"):
        follow()  # a first line may still grow, so it is no error
        return
    with pytest.raises(RecordingError) as caught:
        follow()
    assert "\n" not in str(caught.value)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_recording_with_any_bytes_changed_is_refused_or_shown(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = bytearray(b"".join(map(encode, story())))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(whole) - 1))
        if data.draw(st.booleans()):
            whole[place] = data.draw(st.integers(0, 255))
        else:
            del whole[place : place + data.draw(st.integers(1, 40))]
    path = tmp_path_factory.mktemp("any") / "run.jsonl"
    path.write_bytes(whole)
    refuse_or_show(path)


def test_a_name_with_a_line_end_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    lines = b"".join(map(encode, story())).splitlines(keepends=True)
    number = next(number for number, line in enumerate(lines) if b'"knobs":{' in line)
    lines[number] = lines[number].replace(b'"knobs":{', b'"knobs":{"\\n":null,', 1)
    path.write_bytes(b"".join(lines))
    with pytest.raises(RecordingError, match=r"unknown field ` ` - at `\$.knobs`; give a recording"):
        read_events(path)


def refuse_or_show(path: Path) -> None:
    try:
        events = read_events(path)
    except RecordingError as error:
        said = str(error)
    else:
        show(events)
        return
    assert "\n" not in said


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-HUGE, HUGE)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_recording_with_any_field_changed_is_refused_or_shown(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    contents_ = [as_json(event) for event in story(2)]
    victim = data.draw(st.sampled_from(contents_))
    victim[data.draw(st.sampled_from(sorted(victim)))] = data.draw(VALUES)
    path = tmp_path_factory.mktemp("any") / "run.jsonl"
    path.write_text("".join(f"{json.dumps(content)}\n" for content in contents_))
    refuse_or_show(path)


def test_what_our_own_engine_writes_is_never_refused() -> None:
    for trace in (Path(__file__).parents[2] / "traces").glob("*.jsonl"):
        assert read_events(trace)


def test_a_drafted_root_may_be_accepted(path: Path) -> None:
    rooted = structs.replace(tree_round(0), method="alg1", accepted=[0, 1, 3], committed=[2, 11, 13, 5])
    write(path, [encode(run(("alg1",))), encode(rooted)])
    assert read_events(path)[1] == rooted


def test_a_round_of_which_only_the_tokens_were_cut_is_told_cut_alike(path: Path) -> None:
    cut = structs.replace(tree_round(0), committed=[11])
    write(path, [encode(RUN), encode(cut)])
    assert read_events(path)[1] == structs.replace(cut, accepted=[])


@pytest.mark.parametrize("name", ["a flood of methods", "parameters nested without end", "zeros"])
def test_the_command_line_says_it_in_one_line_and_exits_with_two(path: Path, name: str) -> None:
    write(path, REFUSED[name][0])
    done = subprocess.run(
        [sys.executable, "-m", "dynatui", "replay", str(path), "--headless"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2 * 2**30, 2 * 2**30)),
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
