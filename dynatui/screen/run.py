"""Runs the app on a source with the terminal guarded, and prints the summary afterwards."""

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
from dynatui.terminal.shutdown import Shutdown

_WAIT_S = 1.0
"""A terminal that is lost must not hold up the program for longer than two seconds, all in all."""
_FAULT = 1
"""Textual's exit code after an exception."""
_HUNG_UP = 128 + signal.SIGHUP


def watch(session: Session) -> int:
    """Runs the live app; the exit code."""
    guard.silence_libraries()
    recorder = Recorder(session.record) if session.record else None
    source = EngineSource(session, load_engine(session), recorder)
    return run(source, session.view, lambda: _command(source))


def replay(runs: Sequence[Sequence[Event]], view: View) -> int:
    """Plays a recording; the exit code."""
    return run(TraceSource(runs, view.speed), view)


def follow(path: Path, view: View) -> int:
    """Watches a recording that another process writes; the exit code."""
    return run(FollowSource(path), view)


def run(source: Source, view: View, command: Callable[[], str] = lambda: "") -> int:
    """Runs the app on a source; afterwards the terminal is as it was, and the work is over or left behind."""
    guard.check_variables()
    if not view.color:
        os.environ["NO_COLOR"] = "1"  # where Textual looks for it
    log = guard.log_path(view.log)
    logging.basicConfig(filename=log)
    with ExitStack() as guards:
        with guard.screen_only(log) as output:
            shutdown = Shutdown(output)
            guards.enter_context(shutdown.watched())
            app = DynaApp(source, view, command_line=command, output=output, shutdown=shutdown)
            gc.freeze()  # what is imported by now stays, and a collection that walks it would be felt as a stutter
            app.run(mouse=view.mouse)
            gone = output.lost
        code = app.return_code or (_HUNG_UP if gone else 0)
        shutdown.begin(code)
        return _finish(app, code, log, command, gone=gone)


def _finish(app: DynaApp, code: int, log: Path, command: Callable[[], str], *, gone: bool) -> int:
    """Stops the work and prints the summary; returns the exit code, unless the work cannot be stopped."""
    app.remember_file(app.source.recorded)
    ended = app.source.close(_WAIT_S)
    if gone:
        os._exit(code)  # nobody reads any more, and a flush could wait for ever
    with suppress(OSError):  # a terminal that is gone takes no summary
        if code == _FAULT:
            sys.stderr.write(f"dynatui stopped because of a fault of its own; please report what {log} says\n")
        else:
            _print_summary(app, command())
    if not ended:
        # A thread that loads a model cannot be interrupted, and Python's way out could hang or abort in native code.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _command(source: EngineSource) -> str:
    session = replace(source.session, config=source.config)
    return command_line(session, files=dict(session.files), always=session.set_for_good)


def _print_summary(app: DynaApp, command: str) -> None:
    width = shutil.get_terminal_size().columns
    out, _ = streams.for_printing()
    for line in lines(app.event_reader.session_log, command=command, written=app.written_paths, width=width):
        out.write(f"{line}\n")
    out.flush()
