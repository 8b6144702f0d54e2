"""A recording larger than memory is shown at once: its runs are located without decoding and decoded one at a time."""

import os
import subprocess
import sys
import threading
from io import StringIO
from itertools import chain
from pathlib import Path

import pytest

from decoder.errors import RecordingError
from decoder.events import Event, encode
from dynatui.cli import headless
from dynatui.record import reader as module
from dynatui.record.checks import Checker
from dynatui.record.reader import Runs, read_events
from dynatui.record.transcript import Transcript
from dynatui.sources.playback import Lockstep, Side, TraceSource
from dynatui.state.run_state import Failure, Prompt
from tests.dynatui.scripted_runs import run, runs_of, story

TRACE = Path(__file__).parents[2] / "traces" / "demo.jsonl"


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    numbers, decode = list[int](), Checker.event

    def noted(checker: Checker, line: bytes, number: int) -> Event:
        numbers.append(number)
        return decode(checker, line, number)

    monkeypatch.setattr(Checker, "event", noted)
    return numbers


def lines(events: list[Event]) -> bytes:
    return b"".join(map(encode, events))


def test_only_the_run_that_is_shown_or_gone_to_is_decoded(path: Path, decoded: list[int]) -> None:
    path.write_bytes(lines(story()) * 3000)
    source = TraceSource(Runs(path), speed=1.0)
    source.advance(0.0)
    assert source.records[:2] == [Prompt(1, 3000), story()[0]]
    assert decoded == [1, *range(1, len(story()) + 1)]
    decoded.clear()
    source.go(1999)
    assert Prompt(2000, 3000) in source.records
    assert decoded == [*range(1999 * len(story()) + 1, 2000 * len(story()) + 1)]


def test_the_prompt_of_a_run_is_told_by_its_first_line_alone_if_readable(path: Path, decoded: list[int]) -> None:
    path.write_bytes(lines(story()) + lines([run(prompt="Another"), *story()[1:]]) + b'{"type":"run","version":1}\n')
    source = TraceSource(runs := Runs(path), prompt_of=runs.prompt)
    before = [*decoded]
    assert [source.opening(number) for number in range(3)] == ["Once upon", "Another", ""]
    assert decoded == before


@pytest.mark.parametrize("size", [1, 7, 1000, 5000, 2**20])
def test_runs_are_found_wherever_a_block_ends(path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(module, "_CHUNK", size)
    events = [*story(), run(prompt="alone"), *story(9), run(prompt='{"type":"run"\n{"type":"run"')]
    for content in (lines(events), lines(events) + encode(run())[:-9]):
        path.write_bytes(content)
        assert list(Runs(path)) == runs_of(events)


def test_a_run_begins_with_its_type_whatever_spaces_are_in_its_json(path: Path) -> None:
    path.write_bytes(lines([*story(), *story()]).replace(b'{"type":"run",', b'{ "type": "run", '))
    assert list(Runs(path)) == [story(), story()]
    path.write_bytes(
        lines(story()) + encode(run()).replace(b'{"type":"run",', b"{").replace(b"}\n", b',"type":"run"}\n')
    )
    with pytest.raises(RecordingError, match=f"line {len(story()) + 1} starts a run, but does not begin with"):
        read_events(path)


@pytest.fixture
def faulty(path: Path) -> Path:
    """A recording whose second of three runs has a line that is none."""
    path.write_bytes(lines(story()) + encode(run()) + b"nonsense\n" + lines(story()))
    return path


FAULT = f"line {len(story()) + 2}: "


def test_a_fault_in_a_later_run_is_told_by_its_line_when_the_run_is_reached(faulty: Path) -> None:
    source = TraceSource(Runs(faulty), speed=1.0)
    source.play(1e6)
    assert source.records[: len(story()) + 2] == [Prompt(1, 3), *story(), Prompt(2, 3)]
    *_, last = source.records
    assert isinstance(last, Failure)
    assert (last.exit_code, FAULT in last.message) == (2, True)
    assert (source.length("dynatree"), source.played_s) == ((0, 0.0), (0.0, 0.0))
    source.seek_round("dynatree", 3)
    assert source.records[-1] is last
    source.go(1)
    assert source.length("dynatree")[0] > 0
    source.go(-1)
    assert source.records[-2:] == [Prompt(2, 3), last]


def test_a_fault_in_a_later_run_is_told_beside_the_other_side_and_after_what_stands_before_it(faulty: Path) -> None:
    show = Lockstep(Side("a", Runs(faulty)), Side("b", runs_of([*story(), *story()])), speed=1.0)
    show.go(1)
    wrong, sound = show.states()
    assert wrong.failure is not None
    assert FAULT in wrong.failure.message
    assert sound.failure is None
    out = StringIO()
    with pytest.raises(RecordingError, match=FAULT):
        headless.replay_events(chain.from_iterable(Runs(faulty)), Transcript(out, StringIO(), as_json=False))
    assert out.getvalue().startswith(" at a time")


def test_a_file_that_is_cut_off_meanwhile_is_told(path: Path) -> None:
    path.write_bytes(lines(story()) * 300)
    source = TraceSource(Runs(path), speed=1.0)
    os.truncate(path, 5000)
    source.go(200)
    last = source.records[-1]
    assert isinstance(last, Failure)
    assert "was cut off" in last.message


def test_what_comes_through_a_pipe_can_be_gone_back_in(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_IN_MEMORY", 1000)
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(TRACE.read_bytes(),))
    writer.start()
    found = Runs(path)
    assert [found[1], found[0]] == [*reversed(runs_of(read_events(TRACE)))]
    writer.join()


def test_a_large_recording_takes_little_memory(path: Path) -> None:
    """The whole recording in decoded form would exceed the limit."""
    trace = TRACE.read_bytes()
    with path.open("wb") as file:
        for _ in range(80_000_000 // len(trace)):
            file.write(trace)
    done = subprocess.run(
        [sys.executable, "-c", SHOWN, str(path)], capture_output=True, text=True, check=True, timeout=120
    )
    assert int(done.stdout) < 120_000_000


SHOWN = """
import sys
from pathlib import Path
from dynatui.record.reader import Runs
from dynatui.sources.playback import TraceSource
source = TraceSource(Runs(Path(sys.argv[1])))
for _ in range(20):
    source.go(1)
    source.records.clear()
print(1024 * int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]))
"""
