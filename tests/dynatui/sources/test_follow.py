"""A growing recording is followed from its newest run on, whatever its writer does to the file."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from msgspec import structs

from decoder.errors import RecordingError
from decoder.events import Event, Run, encode
from dynatui.record.checks import Checker
from dynatui.record.recording import Recorder
from dynatui.sources import follow
from dynatui.sources.follow import FollowSource, Tail
from dynatui.state.run_state import Failure, Loading, Prompt
from tests.dynatui.fake_engine import round_, run, story

ONE, TWO = story("one"), story("two")


@pytest.fixture
def tail(path: Path) -> Iterator[Tail]:
    path.touch()
    with closing(Tail(path)) as opened:
        yield opened


def add(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


def refusal(work: Callable[[], object]) -> str:
    with pytest.raises(RecordingError) as caught:
        work()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_events_are_taken_as_they_are_written(path: Path, tail: Tail) -> None:
    told = list[Event]()
    assert tail.take(1.0) == []
    for event in ONE:
        add(path, encode(event))
        told += tail.take(1.0)
    assert told == ONE
    assert encode(run()).startswith(follow.RUN)


def lines(events: list[Event]) -> bytes:
    return b"".join(map(encode, events))


@contextmanager
def tailing(path: Path, content: bytes) -> Iterator[Tail]:
    path.write_bytes(content)
    with closing(Tail(path)) as tail:
        yield tail


@pytest.mark.parametrize("chunk", [64, 300, 1000, 2**20])
@pytest.mark.parametrize("newest", [TWO, TWO[:4]])
def test_who_comes_late_sees_the_newest_run_only_wherever_chunks_end(
    path: Path, chunk: int, newest: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "_CHUNK", chunk)
    with tailing(path, lines(ONE + ONE + newest) + b'{"type":"ru') as tail:
        assert tail.take(1.0) == newest
        assert tail.runs == 3


def test_a_torn_line_is_waited_for_and_may_be_cut_off_by_the_next_writer(path: Path, tail: Tail) -> None:
    whole = lines(ONE)
    for cut in range(0, len(whole), 97):
        add(path, whole[cut : cut + 97])
        tail.take(1.0)
    add(path, lines(TWO)[:-20])
    assert tail.take(1.0) == TWO[:-1]
    with Recorder(path, TWO):
        assert tail.take(1.0) == TWO


def test_a_bad_line_is_named_after_what_came_before_it(path: Path, tail: Tail) -> None:
    add(path, lines(ONE[:3]) + b'{"type":"dance"}\n')
    assert tail.take(1.0) == ONE[:3]
    said = refusal(lambda: tail.take(1.0))
    assert f"{path}: line 4: " in said
    assert "dance" in said
    assert refusal(lambda: tail.take(1.0)) == said


@pytest.mark.parametrize(
    ("content", "said"),
    [
        *((first + lines(TWO), "line 1: ") for first in (b"my thesis\n", lines(ONE[1:]), b"\x00\xff\n")),
        (b"\nmy thesis\n" + lines(TWO), "line 2: "),
        (lines(ONE + TWO) + encode(round_("ar", 9, "x")), f"line {len(ONE + TWO) + 1}: ar has round 9"),
    ],
    ids=["text", "no run", "bytes", "after a blank line", "counted from the beginning of the file"],
)
def test_what_is_no_recording_is_refused_by_its_line(path: Path, content: bytes, said: str) -> None:
    with tailing(path, content) as tail:
        assert f"{path}: {said}" in refusal(lambda: [tail.take(1.0) for _ in range(2)])


def test_blank_lines_are_passed_over(path: Path) -> None:
    with tailing(path, b"\n" + lines(ONE) + b"\n" + lines(TWO) + b" \n") as tail:
        assert tail.take(1.0) == TWO
        add(path, lines(ONE))
        assert tail.take(1.0) == ONE


def test_a_line_without_end_does_not_fill_the_memory(path: Path, tail: Tail, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "_CHUNK", 64)
    monkeypatch.setattr(follow, "LONGEST_LINE", 4000)
    add(path, lines(ONE[:2]) + b" " * 20_000)
    assert "line 3 is longer than any event" in refusal(lambda: tail.take(1.0) and tail.take(1.0))


def replace(path: Path) -> None:
    other = path.with_name("other.jsonl")
    other.write_bytes(lines(TWO))
    other.rename(path)


@pytest.mark.parametrize(
    ("lose", "why"),
    [
        (lambda path: path.write_bytes(lines(ONE[:2])), "cut off while it was followed"),
        (replace, "another file has taken the place"),
        (Path.unlink, "was removed"),
    ],
)
def test_a_file_that_was_cut_off_replaced_or_removed_is_no_longer_followed(
    path: Path, tail: Tail, lose: Callable[[Path], object], why: str
) -> None:
    add(path, lines(ONE))
    tail.take(1.0)
    lose(path)
    assert why in refusal(lambda: tail.take(1.0))


@pytest.mark.parametrize("name", [".", "missing.jsonl", "pipe", "file/run.jsonl"])
def test_what_cannot_be_followed_is_refused_at_once(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    assert "cannot follow" in refusal(lambda: Tail(tmp_path / name))


def test_a_call_takes_no_longer_than_it_may(path: Path) -> None:
    path.write_bytes(lines(ONE))
    ticks = iter(range(1000))
    with closing(Tail(path, clock=lambda: next(ticks))) as tail:
        taken = [tail.take(2.0) for _ in range(len(ONE))]
    assert max(map(len, taken)) <= 2
    assert [event for part in taken for event in part] == ONE


@pytest.fixture
def source(path: Path) -> Iterator[FollowSource]:
    path.write_bytes(lines(ONE))
    opened = FollowSource(path)
    opened.start()
    yield opened
    assert opened.close(0.0)


def test_a_source_says_that_it_waits_and_numbers_runs_if_their_writer_did_not(path: Path, source: FollowSource) -> None:
    assert source.records == [Loading(f"waiting for events in {path}")]
    source.advance(0.0)
    first, *rest = TWO
    assert isinstance(first, Run)
    numbered = [structs.replace(first, prompt_number=3, prompt_count=5), *rest]
    for now, events in ((0.1, TWO), (0.2, numbered)):
        add(path, lines(events))
        source.advance(now)
    assert source.records[1:] == [Prompt(1, 1), *ONE, Prompt(2, 2), *TWO, Prompt(3, 5), *numbered]


def test_a_held_source_catches_up_later(path: Path, source: FollowSource) -> None:
    source.set_paused(paused=True)
    source.advance(0.0)
    assert source.paused
    assert len(source.records) == 1
    add(path, lines(TWO))
    source.set_paused(paused=False)
    source.advance(0.1)
    assert source.records[1:] == [Prompt(2, 2), *TWO]


def test_a_failure_is_told_once_and_the_file_can_be_followed_again(path: Path, source: FollowSource) -> None:
    source.advance(0.0)
    path.write_bytes(b"")
    for now in (0.1, 0.2, 0.3):
        source.advance(now)
    failures = [record for record in source.records if isinstance(record, Failure)]
    assert len(failures) == 1
    assert failures[0].exit_code == 2
    path.unlink()
    source.go(0)
    assert "cannot follow" in str(source.records[-1])
    path.write_bytes(lines(TWO))
    source.go(0)
    source.advance(0.4)
    assert source.records[-len(TWO) - 1 :] == [Prompt(1, 1), *TWO]


def test_without_a_screen_events_come_until_it_is_told_to_stop(path: Path) -> None:
    path.write_bytes(lines(ONE[:3]))
    stop = threading.Event()
    told = follow.events(path, stop)
    assert [next(told) for _ in range(3)] == ONE[:3]
    writer = threading.Timer(0.05, add, (path, lines(ONE[3:])))
    writer.start()
    assert [next(told) for _ in ONE[3:]] == ONE[3:]
    stop.set()
    assert list(told) == []
    writer.join()


def test_of_a_large_recording_only_the_newest_run_is_decoded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(lines(ONE) * 4000 + lines(TWO))
    assert path.stat().st_size > 10e6
    decoded, decode = list[bytes](), Checker.event

    def noted(checker: Checker, line: bytes, number: int) -> Event:
        decoded.append(line)
        return decode(checker, line, number)

    monkeypatch.setattr(Checker, "event", noted)
    with closing(Tail(path)) as tail:
        taken = list[Event]()
        while len(taken) < len(TWO):
            taken += tail.take(0.02)
    assert taken == TWO
    assert decoded == [lines(ONE[:1]), *map(encode, TWO)]
