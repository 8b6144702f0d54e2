"""Time that threads wait for a processor, as the system reports it, and the time lost by rounds."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from decoder.system import waiting
from decoder.system.waiting import APART_S, ProcessorWaits, ThreadWaits, waited_here_s, waited_s

tells_waits = pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists() or not hasattr(os, "sched_setaffinity"),
    reason="this system tells no waits, or threads cannot be put on one processor here",
)


@pytest.fixture
def one_processor() -> Iterator[None]:
    """One processor, shared with another process that computes."""
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
            yield
            other.kill()
    finally:
        os.sched_setaffinity(0, allowed)


def busy(seconds: float) -> None:
    """Computes until this thread has used this much processor time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@tells_waits
@pytest.mark.usefixtures("one_processor")
def test_a_thread_and_a_stretch_that_share_a_processor_are_seen_to_wait() -> None:
    with closing(ProcessorWaits()) as waits:
        before, here, began = waited_s(), waited_here_s(), time.perf_counter()
        waits.begin()
        busy(0.1)
        took_s = time.perf_counter() - began
        assert 0.03 < waits.end(took_s).lost_s <= took_s
        after = waited_s()
    assert before is not None
    assert after is not None
    assert after - before > 0.03
    assert waited_here_s() - here > 0.03


@tells_waits
def test_a_thread_that_has_ended_has_waited_what_it_had() -> None:
    go_on = threading.Event()
    thread = threading.Thread(target=go_on.wait)
    thread.start()
    with closing(ThreadWaits()) as waits:
        before = waits.look()
        go_on.set()
        thread.join()
        assert waits.look() >= before


def test_no_file_stays_open() -> None:
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0

    before = count()
    waited_s()
    waits = ProcessorWaits()
    waits.begin()
    waits.close()
    waits.close()
    thread = threading.Thread(target=waited_here_s)
    thread.start()
    thread.join()
    assert count() == before


@pytest.mark.parametrize("content", ["", "1", "one two three"])
def test_a_system_that_tells_something_else_is_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "schedstat").write_text(content, encoding="ascii")
    monkeypatch.setattr(waiting, "Path", lambda _: tmp_path)
    with closing(ThreadWaits()) as waits:
        assert waits.look() == 0
    monkeypatch.setattr(waiting, "_here", waiting.OwnFile(str(tmp_path / "7" / "schedstat")))
    assert waited_here_s() == 0


def test_a_system_that_tells_nothing_is_not_known_to_have_waited(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(waiting, "Path", lambda _: tmp_path)
    assert waited_s() is None
    monkeypatch.setattr(waiting, "_here", waiting.OwnFile(str(tmp_path / "none")))
    assert waited_here_s() == 0


class Machine:
    """Fake clocks and waits under a test's control, in place of the module's `time` and `ThreadWaits`."""

    def __init__(self) -> None:
        self.now = self.used = self.waited = 100.0
        self.looks = 0

    def passes(self, seconds: float, *, used: float = 0.0, waited: float = 0.0) -> None:
        self.now += seconds
        self.used += used
        self.waited += waited

    def perf_counter(self) -> float:
        return self.now

    def process_time(self) -> float:
        return self.used

    def look(self) -> float:
        self.looks += 1
        return self.waited


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(waiting, "time", made)
    monkeypatch.setattr(waiting, "ThreadWaits", lambda: made)
    return made


@pytest.mark.parametrize(
    ("took", "used", "waited", "lost"),
    [
        (1.0, 2.0, 0.25, 0.25),  # one of two threads waited
        (1.0, 0.25, 0.0, 0.75),  # stopped
        (1.0, 0.25, 0.5, 0.75),  # waited while stopped
        (1.0, 1.0, 3.0, 1.0),  # three threads waited
        (1.0, 1.0, 0.0, 0.0),
    ],
)
def test_what_is_lost_is_what_was_waited_or_what_the_process_stood_still(
    machine: Machine, took: float, used: float, waited: float, lost: float
) -> None:
    waits = ProcessorWaits()
    waits.begin()
    machine.passes(took, used=used, waited=waited)
    assert waits.end(took) == (waited, lost)


def test_waits_of_the_thread_that_draws_are_not_those_of_the_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for number, waited_ns in ((os.getpid(), 5_000_000_000), (7, 1_000_000_000)):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "schedstat").write_text(f"1 {waited_ns} 1", encoding="ascii")
    monkeypatch.setattr(waiting, "Path", lambda _: tmp_path)
    found = list[float]()

    def look() -> None:
        with closing(ThreadWaits()) as waits:
            found.append(waits.look())

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    look()
    assert found == [1.0, 6.0]


def test_a_wait_before_a_stretch_is_not_the_stretchs(machine: Machine) -> None:
    waits = ProcessorWaits()
    waits.begin()
    waits.end(0.0)
    machine.passes(5.0, waited=4.0)  # paused, while the screen waited
    waits.begin()
    machine.passes(1.0, used=1.0, waited=0.5)
    assert waits.end(1.0) == (0.5, 0.5)


def test_short_stretches_are_seldom_looked_at(machine: Machine) -> None:
    waits = ProcessorWaits()
    for _ in range(1000):
        waits.begin()
        machine.passes(0.001, used=0.001)
        waits.end(0.001)
    assert machine.looks <= 1 + 1000 * 0.001 / APART_S
