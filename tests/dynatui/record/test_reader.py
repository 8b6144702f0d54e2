"""A recording larger than memory is shown at once: its runs are located without decoding and decoded one at a time."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
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
    """Numbers of the lines decoded so far, in order."""
    numbers, decode = list[int](), Checker.event

    def noted(checker: Checker, line: bytes, number: int) -> Event:
        numbers.append(number)
        return decode(checker, line, number)

    monkeypatch.setattr(Checker, "event", noted)
    return numbers


def lines(events: list[Event]) -> bytes:
    return b"".join(map(encode, events))


def test_only_the_first_run_is_decoded_before_it_is_shown(path: Path, decoded: list[int]) -> None:
    path.write_bytes(lines(story()) * 3000)
    source = TraceSource(Runs(path), speed=1.0)
    source.advance(0.0)
    assert source.records[:2] == [Prompt(1, 3000), story()[0]]
    assert decoded == [1, *range(1, len(story()) + 1)]


def test_the_prompt_of_a_run_is_told_by_its_first_line_alone(path: Path, decoded: list[int]) -> None:
    path.write_bytes(lines(story()) + lines([run(prompt="Another"), *story()[1:]]))
    source = TraceSource(runs := Runs(path), prompt_of=runs.prompt)
    before = [*decoded]
    assert [source.opening(number) for number in range(2)] == ["Once upon", "Another"]
    assert decoded == before


def test_a_run_whose_first_line_cannot_be_read_has_no_prompt(path: Path) -> None:
    path.write_bytes(lines(story()) + b'{"type":"run","version":1}\n')
    source = TraceSource(runs := Runs(path), prompt_of=runs.prompt)
    assert [source.opening(number) for number in range(2)] == ["Once upon", ""]


def test_a_run_is_decoded_when_it_is_gone_to(path: Path, decoded: list[int]) -> None:
    path.write_bytes(lines(story()) * 3000)
    source = TraceSource(Runs(path), speed=1.0)
    decoded.clear()
    source.go(1999)
    assert source.records[0] == Prompt(2000, 3000)
    assert decoded == [*range(1999 * len(story()) + 1, 2000 * len(story()) + 1)]


@pytest.mark.parametrize("size", [1, 7, 1000, 5000, 2**20])
def test_runs_are_found_wherever_a_block_ends(path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(module, "_CHUNK", size)
    events = [*story(), run(prompt="alone"), *story(9), run(prompt='{"type":"run"\n{"type":"run"')]
    path.write_bytes(lines(events))
    assert list(Runs(path)) == runs_of(events)
    path.write_bytes(lines(events) + encode(run())[:-9])
    assert list(Runs(path)) == runs_of(events)


def test_a_run_with_spaces_in_its_json_is_one_too(path: Path) -> None:
    path.write_bytes(lines([*story(), *story()]).replace(b'{"type":"run",', b'{ "type": "run", '))
    assert list(Runs(path)) == [story(), story()]


def test_a_run_that_does_not_begin_with_its_type_is_refused_by_its_line(path: Path) -> None:
    late = encode(run()).replace(b'{"type":"run",', b"{").replace(b"}\n", b',"type":"run"}\n')
    path.write_bytes(lines(story()) + late)
    with pytest.raises(RecordingError, match=f"line {len(story()) + 1} starts a run, but does not begin with"):
        read_events(path)


def test_a_fault_in_a_later_run_is_told_by_its_line_when_the_run_is_reached(path: Path) -> None:
    path.write_bytes(lines(story()) + encode(run()) + b"nonsense\n" + lines(story()))
    source = TraceSource(Runs(path), speed=1.0)
    source.play(1e6)
    assert source.records[: len(story()) + 2] == [Prompt(1, 3), *story(), Prompt(2, 3)]
    *_, last = source.records
    assert isinstance(last, Failure)
    assert (last.exit_code, f"line {len(story()) + 2}: " in last.message) == (2, True)
    assert (source.length("dynatree"), source.played_s) == ((0, 0.0), (0.0, 0.0))
    source.seek(1.0)
    source.seek_round("dynatree", 3)
    assert source.records[-1] is last
    source.go(1)
    assert source.length("dynatree")[0] > 0
    source.go(-1)
    assert source.records[-2:] == [Prompt(2, 3), last]


def test_a_fault_in_a_later_run_is_told_beside_the_other_side(path: Path) -> None:
    path.write_bytes(lines(story()) + encode(run()) + b"nonsense\n")
    show = Lockstep(Side("a", Runs(path)), Side("b", runs_of([*story(), *story()])), speed=1.0)
    show.go(1)
    faulty, sound = show.states()
    assert faulty.failure is not None
    assert f"line {len(story()) + 2}: " in faulty.failure.message
    assert sound.failure is None


def test_without_a_screen_what_stands_before_a_fault_is_printed(path: Path) -> None:
    path.write_bytes(lines(story()) + encode(run()) + b"nonsense\n")
    out = StringIO()
    with pytest.raises(RecordingError, match=f"line {len(story()) + 2}: "):
        headless.replay_events(chain.from_iterable(Runs(path)), Transcript(out, StringIO(), as_json=False))
    assert out.getvalue().startswith(" at a time")


def test_a_file_that_is_cut_off_meanwhile_is_told(path: Path) -> None:
    path.write_bytes(lines(story()) * 300)
    source = TraceSource(Runs(path), speed=1.0)
    os.truncate(path, 5000)
    source.go(200)
    last = source.records[-1]
    assert isinstance(last, Failure)
    assert "was cut off" in last.message


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Path]:
    """Path of a pipe into which another thread writes a recording of two runs."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(TRACE.read_bytes(),))
    writer.start()
    yield path
    writer.join()


def test_what_comes_through_a_pipe_can_be_gone_back_in(pipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_IN_MEMORY", 1000)
    found = Runs(pipe)
    assert [found[1], found[0]] == [*reversed(runs_of(read_events(TRACE)))]


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
