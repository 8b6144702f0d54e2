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
from dynatui.record.export import files_of
from dynatui.record.reader import read_events
from dynatui.record.transcript import Transcript
from dynatui.render import cards, curves, race, status, tree, versus
from dynatui.render.scene import Scene
from dynatui.render.text import TextPanel
from dynatui.screen.film import moments
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
FLOOD = line(RUN, methods={str(n): {} for n in range(10**5)})
NESTED = encode(RUN).replace(b'"d_max":8', b'"d_max":' + DEEP)
ZEROS = b"\x00" * 100_000 + b"\n"


def begun(**changes: Any) -> list[bytes]:
    return [line(RUN, **changes)]


def after(event: Event, **changes: Any) -> list[bytes]:
    return [encode(RUN), line(event, **changes)]


def node_lists(count: int) -> Json:
    parents = list(range(-1, count - 1))
    return {"tokens": [1] * count, "parents": parents, "logprobs": [0.0] * count, "pieces": ["x"] * count}


REFUSED = (
    # the event `run`
    (begun(methods={}), "a run has 0 methods"),
    ([FLOOD], "a run has 100000 methods"),
    (begun(methods=["ar"]), "Expected `object`"),
    (begun(methods={"ar": 5}), "Expected `object`"),
    ([NESTED], "line 1"),
    (begun(methods={"x" * 2**20: {}}), "methods has 1048576 characters"),
    (begun(target="x" * 2**20), "target has 1048576 characters"),
    (begun(prompt="x" * 10**7), "prompt has 10000000 characters"),
    ([encode(RUN).replace(b'"prompt":"Once upon",', b"")], "missing required field `prompt`"),
    (begun(prompt=[1, 2]), "Expected `str`"),
    ([encode(RUN).replace(b"Once upon", b"\\ud800")], "line 1"),
    (begun(prompt_tokens=[-1]), "Expected `int` >= 0"),
    (begun(temperature=-1), "temperature has -1"),
    (begun(temperature=1e300), "temperature has 1e+300"),
    (begun(top_p=7), "top_p has 7"),
    # the order of events
    ([encode(ROUND)], "an event comes before any run"),
    ([encode(SUMMARY)], "an event comes before any run"),
    (after(ROUND, method="fixed"), "fixed is not a method of this run"),
    (after(SUMMARY, methods={"x": {}}), "x is not a method of this run"),
    (after(ROUND, round=1, position=3), "dynatree has round 1 where round 0"),
    ([encode(RUN), encode(ROUND), encode(ROUND)], "dynatree has round 0 where round 1"),
    (after(ROUND, round=2**52), "where round 0"),
    (after(ROUND, position=7), "has position 7, but the rounds before it have 0 tokens"),
    ([*after(ROUND, t=9), line(tree_round(1), t=1)], "ends at t = 1, but began"),
    # numbers
    (after(ROUND, t=float("nan")), "malformed"),
    (after(ROUND, t=float("inf")), "malformed"),
    ([encode(RUN), encode(ROUND).replace(b'"t":0.02', b'"t":1e999')], "out of range"),
    (after(ROUND, t=1e308), "t has 1e+308"),
    ([*after(ROUND), line(tree_round(1), t=9.0, stalled_s=1e300)], "stalled_s has 1e+300"),
    (after(ROUND, t=5e-324), "ends at t = 4.94066e-324"),
    (after(ROUND, wall_s=-1.0), "Expected `float` >= 0"),
    (after(ROUND, draft_s=-1e300), "draft_s has -1e+300"),
    (after(ROUND, knobs={"tau_h": 1, "tau_l": 1, "d0": 1e308}), "knobs has 1e+308"),
    (after(KNOB, new=-1e308), "new has -1e+308"),
    (after(KNOB, name="volume"), "volume is no knob"),
    (after(ROUND, limited_by="volume"), "volume is no knob"),
    (after(ROUND, draft_logprobs=[0, 900, 0, 0, 0, 0]), "draft_logprobs has 900"),
    (after(ROUND, logprobs=[0, 900, 0, 0, 0, 0]), "logprobs has 900"),
    (after(START, prefill_s=1e300), "prefill_s has 1e+300"),
    (after(SUMMARY, methods={"ar": {"speedup": 1e300}}), "methods has 1e+300"),
    (after(SUMMARY, methods={"ar": {"speedup": "x"}}), "Expected `float | null`"),
    ([encode(RUN), encode(ROUND).replace(b'"round":0', b'"round":' + b"9" * 5000)], "out of range"),
    (after(ROUND, round="0"), "Expected `int`"),
    (begun(methods={"dynatree": {"window": HUGE}}), "methods has a number of 401 digits, but must have"),
    (begun(methods={"ar": {"x": [{"y": [-HUGE]}]}}), "of 401 digits"),
    (begun(methods={"ar": {"x": 1e300}}), "methods has 1e+300"),
    (begun(seed=HUGE), "seed has a number of 401 digits"),
    (begun(schema=HUGE), "schema a number of 401 digits"),
    (after(SUMMARY, methods={"ar": {"rounds": HUGE}}), "of 401 digits"),
    (after(END, peak_bytes=HUGE), "peak_bytes has a number of 401 digits"),
    (begun(expected={"target_read_s": 1e308}), "expected has 1e+308"),
    # trees
    (after(ROUND, tokens=[], parents=[], logprobs=[], pieces=[]), "the root included"),
    (after(ROUND, tokens=[1]), "one entry per node"),
    (after(ROUND, parents=[-1, 1, 0, 1, 1, 3]), "an earlier node"),
    (after(ROUND, parents=[-1, 99, 0, 1, 1, 3]), "an earlier node"),
    (after(ROUND, parents=[-1, -1, 0, 1, 1, 3]), "an earlier node"),
    (after(ROUND, accepted=[1, 99]), "a node that is not in the tree"),
    (after(ROUND, accepted=[0, 1, 3]), "do not form a path from the root"),
    (after(ROUND, accepted=[1, 2]), "do not form a path from the root"),
    (after(ROUND, accepted=[1, 3, 3]), "do not form a path from the root"),
    (after(ROUND, accepted=[1] * 10**6), "do not form a path from the root"),
    (after(ROUND, committed=[5, 6, 7]), "the committed tokens are not"),
    (after(ROUND, committed=[11, 13, 1, 2]), "the committed tokens are not"),
    (after(ROUND, **node_lists(checks.MOST_NODES + 1)), "a tree has 65537 nodes"),
    # texts
    (after(PLAIN, pieces=["x" * 2**21]), "pieces has 2097152 characters"),
    (after(ROUND, text="x" * 2**21), "text has 2097152 characters"),
    (after(END, error="x" * 2**21), "error has 2097152 characters"),
    (begun(path="x" * 2**11), "path has 2048 characters"),
    (begun(path_reason="x" * 2**21), "path_reason has 2097152 characters"),
    (begun(methods={"ar": {"x": "y" * 2**21}}), "methods has 2097152 char"),
    (begun(methods={"ar": {"y" * 2**21: 1}}), "methods has 2097152"),
    (begun(methods={"ar": {"x": [0] * 10**6}}), "more than 4096 parameters"),
    (begun(verifier="x" * 2**21), "verifier has 2097152 characters"),
    (begun(drafting="x" * 2**21), "drafting has 2097152 characters"),
    (after(ROUND, **{"x" * 2**21: 1}), "unknown field"),
    (after(ROUND, **{"x y " * 2**19: 1}), "unknown field"),
    (after(ROUND, type="x y " * 2**19), "Invalid value"),
    # the file
    (after(ROUND, mood="bad"), "unknown field `mood`"),
    ([encode(RUN), b'{"type":"dance"}\n'], "Invalid value 'dance'"),
    ([encode(RUN), b"\xff\xfe\x00\n"], "line 2"),
    ([encode(RUN), b"[]\n"], "Expected `object`"),
    ([encode(RUN), b'{"type":"run","methods":' + DEEP + b"}\n"], "line 2"),
    (after(ROUND, knobs={"\n": None}), "unknown field ` ` - at `$.knobs`; give a recording"),
    ([b"{}\n"], "line 1"),
    ([encode(RUN)[:-1] + encode(RUN)], "line 1"),
    ([ZEROS], "line 1"),
    ([bytes(range(256)) * 10], "line 1"),
    ([b""], "holds no complete event"),
    ([encode(RUN).decode().encode("utf-16")], "it is UTF-16 text; convert it with iconv -f UTF-16 "),
    ([encode(RUN).decode().encode("utf-16-be")], "it is UTF-16BE text; convert it with iconv"),
    ([encode(RUN).decode().encode("utf-32")], "it is UTF-32 text; convert it with iconv -f UTF-32 "),
    ([b"\xef\xbb\xbf", encode(RUN)], "it begins with a byte order mark; remove it with sed"),
    ([gzip.compress(encode(RUN) + encode(ROUND))], "it is compressed; unpack it with gunzip"),
    ([gzip.compress(b"")], "it is compressed; unpack it with gunzip"),
    (begun(schema=SCHEMA + 1), f"schema {SCHEMA + 1}, this version reads {SCHEMA}"),
    (begun(schema=99, novel=True), f"schema 99, this version reads {SCHEMA}"),
    (begun(ranks=["cpu"] * (checks.MOST_RANKS + 1)), "there are 4097 processes"),
    (begun(ranks=["x" * 2000]), "ranks has 2000 characters"),
    (after(SUMMARY, peak_bytes_by_rank=[1] * (checks.MOST_RANKS + 1)), "4097 processes"),
)

SHOWN: dict[str, list[bytes]] = {
    "blank lines": [b" \n\n", encode(RUN), b"\n", encode(ROUND), b"\r\n", b"\n", b"  "],
    "a blank line before another run": [encode(RUN), encode(ROUND), b"\n", encode(RUN), encode(ROUND), b"\n"],
    "a run alone": [encode(RUN)],
    "the same run twice": [encode(RUN), encode(RUN)],
    "a run that begins in the middle of another": [encode(RUN), encode(ROUND), encode(RUN), encode(ROUND)],
    "a torn last line": [encode(RUN), encode(ROUND), encode(tree_round(1))[:-9]],
    "an end before any round": [encode(RUN), encode(END), encode(SUMMARY), encode(ROUND)],
    "a summary of nobody": [encode(RUN), encode(ROUND), line(SUMMARY, methods={})],
    "a summary of nothing": after(SUMMARY, methods={"ar": {}, "dynatree": {}}),
    "a summary that lies": after(SUMMARY, methods={"dynatree": {"rounds": -5, "committed": 10**15}}),
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
    "a round that takes no time": [*after(ROUND, t=0, wall_s=0), line(tree_round(1), t=0, wall_s=0)],
    "a round that takes years": after(ROUND, t=9e8, wall_s=9e8, draft_s=9e8, verify_s=9e8, commit_s=9e8),
    "rounds that commit nothing": [*after(ROUND, committed=[], text=""), line(tree_round(1), position=0)],
    "knobs beyond all bounds": [
        encode(RUN),
        line(ROUND, knobs={"tau_h": -9e8, "tau_l": 9e8, "d0": -9e8}),
        line(KNOB, old=9e8, new=-9e8),
        line(KNOB, name="history", new=17),
    ],
    "a turn in a round that never comes": [encode(RUN), encode(ROUND), line(KNOB, round=2**53)],
    "impossible improbabilities": after(ROUND, logprobs=[-9e8] * 6),
    "a chain of five thousand": after(ROUND, **node_lists(5000), accepted=list(range(1, 5000)), committed=[1] * 5000),
    "five thousand siblings": after(
        ROUND, **{**node_lists(5000), "parents": [-1] + [0] * 4999}, accepted=[7], committed=[1, 2]
    ),
    "long pieces": after(ROUND, pieces=["漢" * 4096] * 6, text="漢" * 8_000),
    "tokens beyond any vocabulary": after(ROUND, tokens=[2**53] * 6, committed=[2**53, 2**53, 0]),
    "a draft that is not told": after(ROUND, draft_forwards=None, draft_s=None, accepted=[], committed=[1] * 50),
    "many short runs": [encode(RUN) * 2000],
}


def write(path: Path, parts: list[bytes]) -> None:
    path.write_bytes(b"".join(parts))


@pytest.mark.parametrize(("parts", "reason"), REFUSED, ids=[reason[:60] for _, reason in REFUSED])
def test_what_no_run_could_have_written_is_refused_in_one_line(path: Path, parts: list[bytes], reason: str) -> None:
    write(path, parts)
    with pytest.raises(RecordingError) as caught:
        read_events(path)
    said = str(caught.value)
    assert said.startswith(f"{path}: line {len(parts)}: " if not reason.startswith(("it ", "holds ")) else str(path))
    assert reason in said
    assert "\n" not in said
    assert len(said) < len(str(path)) + 1500
    assert caught.value.exit_code == 2
    if b"\n" in path.read_bytes():  # a first line without its end may still grow, so it is no error
        with pytest.raises(RecordingError) as caught:
            follow(path)
        assert "\n" not in str(caught.value)


def follow(path: Path) -> None:
    with closing(Tail(path)) as tail:
        for _ in range(2):
            tail.take(60.0)


@pytest.mark.parametrize("parts", SHOWN.values(), ids=SHOWN)
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
    source.play(source.played_s[1])
    source.seek_round(watched, 1)
    source.go(1)
    source.play(1e12)
    both = Lockstep(Side("a", runs_of(events)), Side("b", runs_of(story())))
    for seconds in (0.0, 1e9, 0.01):
        both.seek(seconds)
        versus.table(both.states(), (80, 7))


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


@st.composite
def with_changed_bytes(draw: st.DrawFn) -> bytes:
    whole = bytearray(b"".join(map(encode, story())))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(whole) - 1))
        if draw(st.booleans()):
            whole[place] = draw(st.integers(0, 255))
        else:
            del whole[place : place + draw(st.integers(1, 40))]
    return bytes(whole)


@st.composite
def with_a_changed_field(draw: st.DrawFn) -> bytes:
    contents = [as_json(event) for event in story(2)]
    victim = draw(st.sampled_from(contents))
    victim[draw(st.sampled_from(sorted(victim)))] = draw(VALUES)
    return "".join(f"{json.dumps(content)}\n" for content in contents).encode()


@given(with_changed_bytes() | with_a_changed_field())
@settings(max_examples=300)
def test_a_recording_with_anything_changed_is_refused_or_shown(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("any") / "run.jsonl"
    path.write_bytes(content)
    try:
        events = read_events(path)
    except RecordingError as error:
        said = str(error)
    else:
        show(events)
        return
    assert "\n" not in said


def test_what_our_own_engine_writes_is_never_refused() -> None:
    for trace in (Path(__file__).parents[2] / "traces").glob("*.jsonl"):
        assert read_events(trace)


def test_a_drafted_root_may_be_accepted_and_a_round_whose_tokens_alone_were_cut_is_cut_alike(path: Path) -> None:
    rooted = structs.replace(tree_round(0), method="alg1", accepted=[0, 1, 3], committed=[2, 11, 13, 5])
    write(path, [encode(run(("alg1",))), encode(rooted)])
    assert read_events(path)[1] == rooted
    cut = structs.replace(tree_round(0), committed=[11])
    write(path, [encode(RUN), encode(cut)])
    assert read_events(path)[1] == structs.replace(cut, accepted=[])


def test_the_command_line_says_it_in_one_line_and_exits_with_two(path: Path) -> None:
    write(path, [FLOOD])
    done = subprocess.run(
        [sys.executable, "-m", "dynatui", "replay", str(path), "--headless"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2 * 2**30, 2 * 2**30)),
    )
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
