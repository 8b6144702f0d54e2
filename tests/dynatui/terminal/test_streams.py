"""Tests of where the screen can be shown, and of closed and unusual streams."""

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dynatui.terminal import streams


class Stream:
    """A standard stream that is a terminal or not."""

    def __init__(self, *, terminal: bool) -> None:
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    def fileno(self) -> int:
        return 0


@pytest.fixture
def arrange(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool, bool, bool], None]:
    """Function that chooses which of standard input, output and error are terminals."""

    def act(stdin: bool, stdout: bool, stderr: bool) -> None:  # noqa: FBT001 - three alike parameters
        for name, terminal in (("stdin", stdin), ("stdout", stdout), ("stderr", stderr)):
            monkeypatch.setattr(sys, name, Stream(terminal=terminal))

    return act


@pytest.mark.parametrize(
    ("stdin", "stdout", "stderr", "expected"),
    [(True, True, True, True), (True, False, True, False), (True, True, False, False)],
)
def test_a_screen_needs_standard_output_and_error(
    arrange: Callable[[bool, bool, bool], None], *, stdin: bool, stdout: bool, stderr: bool, expected: bool
) -> None:
    arrange(stdin, stdout, stderr)
    assert streams.can_show_screen() is expected


def test_a_dumb_terminal_has_no_screen(
    arrange: Callable[[bool, bool, bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    arrange(True, True, True)
    monkeypatch.setenv("TERM", "dumb")
    assert not streams.can_show_screen()


def test_where_standard_input_brought_the_prompt_the_keys_come_from_the_terminal(
    arrange: Callable[[bool, bool, bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []
    monkeypatch.setattr(os, "open", lambda path, _flags: len(path))
    monkeypatch.setattr(os, "dup2", lambda *arguments: calls.append(arguments))
    monkeypatch.setattr(os, "close", calls.append)
    arrange(False, True, True)
    assert streams.can_show_screen()
    terminal = len("/dev/tty")
    assert calls == [(terminal, 0), terminal]


def test_without_a_terminal_to_steer_from_there_is_no_screen(
    arrange: Callable[[bool, bool, bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> int:
        raise OSError(6, "No such device or address")

    arrange(False, True, True)
    monkeypatch.setattr(os, "open", refuse)
    assert not streams.can_show_screen()


def test_closed_streams_take_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    out, err = streams.for_printing()
    with out, err:
        print("text", file=out, flush=True)
        print("progress", file=err, flush=True)
    streams.say("nobody hears this")
    streams.discard_output()


def test_a_pipe_gets_utf_8_whatever_the_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(pipe, encoding="ascii"))
    out, _ = streams.for_printing()
    print("Élan", end="", file=out, flush=True)
    assert pipe.getvalue() == "Élan".encode()
    out.detach()  # type: ignore[attr-defined]  # `out` is the TextIOWrapper above


@pytest.mark.parametrize(("terminal", "shown"), [(True, "a\u241b[2Jb\n"), (False, "a\x1b[2Jb\n")])
def test_text_is_cleaned_for_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch,
    terminal: bool,  # noqa: FBT001 - a parameter of the test's cases
    shown: str,
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(out, "isatty", lambda: terminal)
    streams.show("a\x1b[2Jb\n", out)
    assert out.getvalue() == shown


def test_what_a_broken_output_holds_goes_nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "out"
    with path.open("w", encoding="utf-8") as output:
        monkeypatch.setattr(sys, "stdout", output)
        output.write("held")
        streams.discard_output()
    assert path.read_bytes() == b""
