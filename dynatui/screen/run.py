"""Entry points of the command line: each runs an app, restores the terminal, then prints a summary."""

import asyncio
import gc
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from textual.app import App

from decoder.events import Event
from dynatui.prometheus.exporter import exporting
from dynatui.record.command_line import command_line
from dynatui.record.reader import Runs
from dynatui.record.recording import Recorder
from dynatui.render.server_words import summary
from dynatui.screen.app import DynaApp
from dynatui.screen.compare import CompareApp
from dynatui.screen.exit_summary import lines
from dynatui.screen.film import Screenplay, film
from dynatui.screen.panel_app import HUNG_UP
from dynatui.screen.server_app import ServerApp
from dynatui.session import Session, View
from dynatui.sources.engine import EngineSource, load_with_times
from dynatui.sources.follow import FollowSource
from dynatui.sources.playback import Lockstep, Side, TraceSource
from dynatui.sources.server import ServerSource
from dynatui.sources.source import Source
from dynatui.terminal import guard, streams
from dynatui.terminal.shutdown import Shutdown

A = TypeVar("A", bound=App[Any])
Recording: TypeAlias = tuple[Path, Sequence[Sequence[Event]]]

_WAIT_S = 1.0
"""Seconds to wait for the source to end: after a lost terminal, the program must end within two seconds."""
_ASIDE_S = 0.4
_FAULT = 1


def watch(session: Session) -> int:
    guard.silence_libraries()
    with exporting(session.metrics_port) as exporter:
        recorder = Recorder(session.record) if session.record else None
        source = EngineSource(session, load_with_times(session), recorder, exporter)

        def command() -> str:
            present = replace(source.session, config=source.config)
            return command_line(present, files=dict(present.files), always=present.set_for_good)

        return _show(source, session.view, command)


def replay(runs: Runs, view: View) -> int:
    return _show(TraceSource(runs, view.speed, runs.prompt), view)


def follow(path: Path, view: View) -> int:
    return _show(FollowSource(path), view)


def filmed(run: Sequence[Event], size: tuple[int, int]) -> bytes:
    """The asciicast of a recorded run, in this size; the program needs no terminal to make it."""
    source = TraceSource([run])
    source.seek(source.played_s[1])
    app = DynaApp(source, ticking=False)

    async def laid_out() -> Screenplay:
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            return app.screenplay()

    return b"".join(film(asyncio.run(laid_out()), run))


def compare(left: Recording, right: Recording, view: View) -> int:
    (first, left_recording), (second, right_recording) = left, right
    alike = first.name == second.name
    names = [f"{path.resolve().parent.name}/{path.name}" if alike else path.name for path in (first, second)]
    lockstep = Lockstep(Side(names[0], left_recording), Side(names[1], right_recording), view.speed)
    with _ran(partial(CompareApp, lockstep, view), view, mouse=False) as (_, code, _, terminal_lost):
        if terminal_lost:
            os._exit(code)  # the terminal is closed, so the flush of a normal exit could block
        return code


def attach(source: ServerSource, view: View) -> int:
    """Raises the source's DecoderError."""
    with _ran(partial(ServerApp, source, view), view, mouse=False) as (app, code, log, terminal_lost):
        source.close(_WAIT_S)
        if terminal_lost:
            os._exit(code)  # the terminal is closed, so the flush of a normal exit could block
        if code == _FAULT:
            streams.say(f"stopped because of a bug; please report what {log} says")
        if app.failure is not None:
            raise app.failure
        if (line := summary(app.state)) and code != _FAULT:
            out, _ = streams.for_printing()
            with suppress(OSError):  # a closed terminal cannot show the summary
                out.write(f"{line}\n")
                out.flush()
        return code


def _show(source: Source, view: View, command: Callable[[], str] = lambda: "") -> int:
    make = partial(DynaApp, source, view, command_line=command)
    with _ran(make, view, mouse=view.mouse) as (app, code, log, terminal_lost):
        return _finish(app, code, log, command, terminal_lost=terminal_lost)


@contextmanager
def _ran(make: Callable[..., A], view: View, *, mouse: bool) -> Iterator[tuple[A, int, Path, bool]]:
    """Runs an app, then starts the time limit of the exit.

    Yields the app, its exit code, the path of the log, and whether the terminal is lost.
    """
    guard.check_variables()
    guard.check_descriptors()
    if not view.color:
        os.environ["NO_COLOR"] = "1"  # read by Textual
    log = guard.log_path(view.log)
    logging.basicConfig(filename=log)
    with ExitStack() as until_finished:
        with guard.screen_only(log) as output:
            shutdown = Shutdown(output)
            until_finished.enter_context(shutdown.watched())
            app = make(output=output, shutdown=shutdown)
            gc.freeze()  # imported objects stay in memory, and a garbage collection that scans them would delay a frame
            app.run(mouse=mouse)
            terminal_lost = output.lost
        code = app.return_code or (HUNG_UP if terminal_lost else 0)
        shutdown.begin(code)
        yield app, code, log, terminal_lost


def _finish(app: DynaApp, code: int, log: Path, command: Callable[[], str], *, terminal_lost: bool) -> int:
    """Stops the source, prints the summary and returns the exit code; ends the process if the source does not stop."""
    app.remember_file(app.source.recorded)
    app.aside.wait(_ASIDE_S)
    ended = app.source.close(_WAIT_S)
    if terminal_lost:
        os._exit(code)  # the terminal is closed, so the flush of a normal exit could block
    with suppress(OSError):  # a closed terminal cannot show the summary
        if code == _FAULT:
            sys.stderr.write(f"dynatui stopped because of a bug; please report what {log} says\n")
        else:
            width, (out, _) = shutil.get_terminal_size().columns, streams.for_printing()
            report = lines(app.event_reader.session_log, command=command(), written=app.written_paths, width=width)
            out.writelines(f"{line}\n" for line in report)
            out.flush()
    if app.aside.busy:
        streams.say(
            "an export was cut off and lacks files; next time, quit only after the note that files are exported"
        )
    if app.source.lost is not None:
        streams.say(str(app.source.lost))
        code = code or app.source.lost.exit_code
    if not ended:
        # A thread that loads a model cannot be interrupted, and Python's normal exit could hang or abort in native
        # code, so the process ends without it.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code
