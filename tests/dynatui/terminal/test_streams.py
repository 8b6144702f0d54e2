"""Where the screen can be shown, and closed and unusual streams."""

import io
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from dynatui.terminal import streams

Arrange = Callable[..., None]


@pytest.fixture
def arrange(monkeypatch: pytest.MonkeyPatch) -> Arrange:
    """Function that chooses which standard streams are terminals; by default all but standard input."""

    def act(*terminals: str) -> None:
        for name in ("stdin", "stdout", "stderr"):
            terminal = name in (terminals or ("stdout", "stderr"))
            monkeypatch.setattr(sys, name, SimpleNamespace(isatty=partial(bool, terminal), fileno=int))

    return act


@pytest.mark.parametrize(
    ("terminals", "term", "expected"),
    [
        (("stdin", "stdout", "stderr"), "xterm", True),
        (("stdin", "stderr"), "xterm", False),
        (("stdin", "stdout"), "xterm", False),
        (("stdin", "stdout", "stderr"), "dumb", False),
    ],
)
def test_a_screen_needs_standard_output_and_error_and_no_dumb_terminal(
    arrange: Arrange, monkeypatch: pytest.MonkeyPatch, terminals: tuple[str, ...], term: str, *, expected: bool
) -> None:
    arrange(*terminals)
    monkeypatch.setenv("TERM", term)
    assert streams.can_show_screen() is expected


def test_where_standard_input_brought_the_prompt_the_keys_come_from_the_terminal(
    arrange: Arrange, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []
    monkeypatch.setattr(os, "open", lambda path, _flags: len(path))
    monkeypatch.setattr(os, "dup2", lambda *arguments: calls.append(arguments))
    monkeypatch.setattr(os, "close", calls.append)
    arrange()
    assert streams.can_show_screen()
    terminal = len("/dev/tty")
    assert calls == [(terminal, 0), terminal]


def test_without_a_terminal_to_steer_from_there_is_no_screen(arrange: Arrange, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> int:
        raise OSError(6, "No such device or address")

    arrange()
    monkeypatch.setattr(os, "open", refuse)
    assert not streams.can_show_screen()


def test_closed_streams_take_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    out, err = streams.for_printing()
    with out, err:
        for stream in (out, err):
            print("text", file=stream, flush=True)
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
def test_text_is_cleaned_for_a_terminal_alone(monkeypatch: pytest.MonkeyPatch, *, terminal: bool, shown: str) -> None:
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
