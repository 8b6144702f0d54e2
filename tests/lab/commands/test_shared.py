"""The results of a measurement are printed and kept, however it ends; its progress is a bar and the time left."""

import io
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from decoder.errors import ConfigError
from dynatui.lab.bench import Done, Progress
from dynatui.lab.commands.shared import Measured, _append, bar, left_s, run_and_report, shown, words
from dynatui.terminal.streams import OutputError, ReaderLeftError

DONE = Measured("a table\n", Done({"rows": [1]}, interrupted=False))
LINE = '{"rows":[1]}\n'
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def measured(*signals: signal.Signals, done: Measured = DONE) -> Callable[[], Measured]:
    """A measurement that the first signal interrupts while it runs, and the others while it computes its results."""

    def measure() -> Measured:
        try:
            for number in signals[:1]:
                signal.raise_signal(number)
        except KeyboardInterrupt:
            for number in signals[1:]:
                signal.raise_signal(number)
        return done

    return measure


def test_it_is_printed_and_one_line_is_added_to_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kept.jsonl"
    path.write_text("before\n")
    assert run_and_report(measured(), path) == 0
    assert capsys.readouterr().out == "a table\n"
    assert path.read_text() == f"before\n{LINE}"


@pytest.mark.parametrize("number", STOPS)
def test_a_signal_that_stops_leaves_what_was_measured_and_a_third_one_ends_the_telling_too(
    number: signal.Signals, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    partial = Measured(DONE.text, Done(DONE.done.report, interrupted=True))
    before = signal.getsignal(number)
    assert run_and_report(measured(number, number, done=partial), tmp_path / "kept.jsonl") == 130
    assert capsys.readouterr().out == "a table\n"
    assert (tmp_path / "kept.jsonl").read_text() == LINE
    assert signal.getsignal(number) is before
    assert run_and_report(measured(number, signal.SIGTERM, signal.SIGINT), None) == 130
    nothing = "dynatui: interrupted before everything was measured at least once, so nothing can be compared\n"
    assert (*capsys.readouterr(),) == ("", nothing)


def test_a_signal_that_was_ignored_stays_so(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert run_and_report(measured(signal.SIGHUP), tmp_path / "kept.jsonl") == 0
    finally:
        signal.signal(signal.SIGHUP, before)


class Broken(io.StringIO):
    """A standard output that fails on flush."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self._error = error

    def flush(self) -> None:
        raise self._error


@pytest.mark.parametrize(
    ("error", "told_as"),
    [(BrokenPipeError(), ReaderLeftError), (OSError(28, "No space left on device"), OutputError)],
)
def test_what_cannot_be_printed_is_kept(
    error: OSError, told_as: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout", Broken(error))
    with pytest.raises(told_as):
        run_and_report(measured(), tmp_path / "kept.jsonl")
    assert (tmp_path / "kept.jsonl").read_text() == LINE


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_what_cannot_be_kept_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="cannot write /dev/full: No space left on device; set --json to another"):
        run_and_report(measured(), Path("/dev/full"))
    assert capsys.readouterr().out == "a table\n"


def test_what_cannot_be_written_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, said in ((tmp_path, "Is a directory"), (tmp_path / "pipe", r"cannot write .*pipe")):
        with pytest.raises(ConfigError, match=said):
            run_and_report(lambda: pytest.fail("this takes minutes"), path)


def test_of_a_line_that_does_not_fit_nothing_is_kept(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    path = tmp_path / "kept.jsonl"
    path.write_text(LINE)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(ConfigError, match="File too large"):
            _append(path, b"x" * 200)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert path.read_text() == LINE


def test_a_bar_is_as_full_as_its_share_and_a_time_is_told_as_people_say_it() -> None:
    assert [bar(share) for share in (0.0, 0.5, 1.0)] == [
        f"[{'.' * 20}] 0%",
        f"[{'#' * 10}{'.' * 10}] 50%",
        f"[{'#' * 20}] 100%",
    ]
    assert [words(seconds) for seconds in (41.2, 180, 9000)] == ["41 s", "3 min", "2.5 h"]


def test_time_left_is_told_at_the_pace_since_the_first_step_once_something_has_moved() -> None:
    assert left_s(0.5, 0.75, 10.0) == pytest.approx(10.0)
    assert left_s(0.5, 0.5, 10.0) is None


def test_steps_are_told_now_and_then_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(list(shown(Progress(f"at {share}", share) for share in (0.0, 0.3, 0.6, 1.0)))) == 4
    assert capsys.readouterr().err == "dynatui: at 0.0\ndynatui: at 1.0\n"
