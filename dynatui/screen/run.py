"""Runs the app on a source: before it, a quiet terminal; after it, the terminal as it was, and a summary on it."""

import gc
import logging
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from decoder.events import Event
from dynatui.record.command_line import command_line
from dynatui.record.recording import Recorder
from dynatui.screen.app import DynaApp
from dynatui.screen.exit_summary import lines
from dynatui.session import Session, View
from dynatui.sources.engine import EngineSource, load_engine
from dynatui.sources.follow import FollowSource
from dynatui.sources.playback import TraceSource
from dynatui.sources.source import Source
from dynatui.terminal import guard, streams
from dynatui.terminal.shutdown import Departure

_WAIT_S = 1.0
"""A terminal that is lost must not hold up the program for longer than two seconds, all in all."""
_FAULT = 1
"""Textual's exit code after an exception."""
_HUNG_UP = 128 + signal.SIGHUP


def watch(session: Session) -> int:
    """Runs the live app; the exit code."""
    guard.quieten()
    recorder = Recorder(session.record) if session.record else None
    source = EngineSource(session, load_engine(session), recorder)
    return show(source, session.view, lambda: _command(source))


def replay(runs: Sequence[Sequence[Event]], view: View) -> int:
    """Plays a recording; the exit code."""
    return show(TraceSource(runs, view.speed), view)


def follow(path: Path, view: View) -> int:
    """Watches a recording that another process writes; the exit code."""
    return show(FollowSource(path), view)


def show(source: Source, view: View, command: Callable[[], str] = lambda: "") -> int:
    """Runs the app on a source; afterwards the terminal is as it was, and the work is over or left behind."""
    guard.check_variables()
    if not view.color:
        os.environ["NO_COLOR"] = "1"  # where Textual looks for it
    log = guard.log_path(view.log)
    logging.basicConfig(filename=log)
    with ExitStack() as watch_over:
        with guard.screen_only(log) as line:
            departure = Departure(line)
            watch_over.enter_context(departure.watched())
            app = DynaApp(source, view, command_line=command, line=line, departure=departure)
            gc.freeze()  # what is imported by now stays, and a collection that walks it would be felt as a stutter
            app.run(mouse=view.mouse)
            gone = line.lost
        code = app.return_code or (_HUNG_UP if gone else 0)
        departure.begin(code)
        return _closed(app, code, log, command, gone=gone)


def _closed(app: DynaApp, code: int, log: Path, command: Callable[[], str], *, gone: bool) -> int:
    """Ends the work, and tells of it; returns the exit code, unless the work goes on."""
    app.kept(app.source.recorded)
    ended = app.source.close(_WAIT_S)
    if gone:
        os._exit(code)  # nobody reads any more, and a flush could wait for ever
    with suppress(OSError):  # a terminal that is gone reads no farewell
        if code == _FAULT:
            sys.stderr.write(f"dynatui stopped because of a fault of its own; please report what {log} says\n")
        else:
            _say_farewell(app, command())
    if not ended:
        # A thread that loads a model cannot be interrupted, and Python's way out could hang or abort in native code.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _command(source: EngineSource) -> str:
    session = replace(source.session, config=source.config)
    return command_line(session, files=dict(session.files), always=session.set_for_good)


def _say_farewell(app: DynaApp, command: str) -> None:
    width = shutil.get_terminal_size().columns
    out, _ = streams.for_printing()
    for line in lines(app.intake.session_log, command=command, kept=app.kept_paths, width=width):
        out.write(f"{line}\n")
    out.flush()
