"""Runs the apps on their sources, and prints a summary at the end."""

import asyncio
import gc
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from textual.app import App

from decoder.analysis.metrics import missing_speedups
from decoder.analysis.stalls import stall_notes
from decoder.events import Event
from dynatui.clean import clean_line
from dynatui.number_format import counted, memory_by_rank, percent, short
from dynatui.prometheus import exporting
from dynatui.record.command_line import command_line
from dynatui.record.reader import Runs
from dynatui.record.recording import Recorder
from dynatui.render.ink import Column, Sheet, best, column
from dynatui.render.server import summary
from dynatui.render.words import WHY_ALONE, WHY_BY_DESIGN
from dynatui.result import ALONE, BY_DESIGN, heading, result, same_as_ar, speedup_cell
from dynatui.screen.app import DynaApp
from dynatui.screen.compare import CompareApp
from dynatui.screen.film import Screenplay, film
from dynatui.screen.panel_app import HUNG_UP
from dynatui.screen.scene_builder import Source
from dynatui.screen.server_app import ServerApp
from dynatui.screen.settings_tried import table
from dynatui.session import Session, View
from dynatui.sources.engine import EngineSource, load_with_times
from dynatui.sources.follow import FollowSource
from dynatui.sources.playback import Lockstep, Side, TraceSource
from dynatui.sources.server import ServerSource
from dynatui.state.server_state import final_words, verdict
from dynatui.state.session_log import OPENING, Result, SessionLog
from dynatui.terminal import guard, streams
from dynatui.terminal.shutdown import Shutdown

_LEAST_NAME = 10


def lines(log: SessionLog, written: Sequence[Path] = (), command: str = "", width: int = 80) -> list[str]:
    """Lines of the summary, at most `width` cells wide; lines to be copied (paths and the command) may be longer."""
    return [
        *_table(log, width),
        *_result(log, width),
        *(table(tried, width) if (tried := log.settings_tried()) and len(tried.rows) > 1 else ()),
        *((memory_by_rank(log.peak_bytes_by_rank)[:width],) if log.peak_bytes_by_rank else ()),
        *(f"written: {clean_line(str(path))}" for path in written),
        *(("command line of these settings:", f"  {clean_line(command)}") if command else ()),
    ]


def _table(log: SessionLog, width: int) -> Iterator[str]:
    runs = log.all_runs()
    if not runs:
        return
    room = max(_LEAST_NAME, min(OPENING, width - _SHEET.cells))
    methods = sorted({line.method for line in runs})
    yield column(f"{', '.join(methods)} on", room) + _SHEET.heads
    for line in runs:
        yield column(f"{line.number} {line.opening}", room) + _SHEET.row(line)
    agreed = {line.method: {_agreement(other) for other in runs if other.method == line.method} for line in runs}
    if alone := ", ".join(name for name in methods if ALONE in agreed[name]):
        yield best(width, f"{alone}: {WHY_ALONE}", f"{alone}: own noise, not compared")[:width]
    if by_design := ", ".join(name for name in methods if BY_DESIGN in agreed[name]):
        yield f"{by_design}: {WHY_BY_DESIGN}"[:width]
    if stalled := stall_notes(line.figures for line in runs):
        yield best(width, *stalled)
    if log.dropped:
        yield f"and {counted(log.dropped, 'earlier run')}"
    for words in missing_speedups({f"prompt {line.number}": line.figures for line in runs}):
        yield words[:width]


def _result(log: SessionLog, width: int) -> Iterator[str]:
    if log.all_runs():
        yield column(": ".join(heading(log.state.race)), width).rstrip()
        yield from (column(line, width).rstrip() for line in result(log.state.race, width))


def _agreement(line: Result) -> str:
    return same_as_ar(line.method, line.figures, f"to {line.figures.first_difference}")


_COLUMNS: tuple[Column[Result], ...] = (
    Column("rounds", 7, lambda line: str(line.figures.rounds)),
    Column("tokens", 7, lambda line: str(line.figures.committed)),
    Column("L-bar", 6, lambda line: short(line.figures.tokens_per_round)),
    Column("acc. rate", 11, lambda line: percent(line.figures.acceptance_rate)),
    Column("tokens/s", 9, lambda line: short(line.figures.tokens_per_second, 1)),
    Column("speed-up", 9, lambda line: speedup_cell(line.figures)),
    Column("same as ar", 11, _agreement),
)
_SHEET = Sheet(_COLUMNS, room=sum(column.cells for column in _COLUMNS))


A = TypeVar("A", bound=App[Any])
Recording: TypeAlias = tuple[Path, Sequence[Sequence[Event]]]

_WAIT_S = 1.0
"""Seconds to wait for the source to end; after the terminal is lost, the program must end within two seconds."""
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


def show_replay(runs: Runs, view: View) -> int:
    return _show(TraceSource(runs, view.speed, runs.prompt), view)


def follow(path: Path, view: View) -> int:
    return _show(FollowSource(path), view)


def filmed(run: Sequence[Event], size: tuple[int, int]) -> bytes:
    """The asciicast of a recorded run for a terminal of this size; works without a terminal."""
    source = TraceSource([run])
    source.play(source.played_s[1])
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
    with _ran(partial(CompareApp, lockstep, view), view, mouse=False) as (_, code, _, _):
        return code


def attach(source: ServerSource, view: View, broken: int = 0) -> int:
    """Shows a server; returns the exit code: `broken` if its figures are not as expected (--expect) or could not be
    compared. Raises the source's DecoderError.
    """
    make = partial(ServerApp, source, view)
    with _ran(make, view, mouse=False, close=lambda _: source.close(_WAIT_S)) as (app, code, log, _):
        if app.failure is not None:
            raise app.failure
        judged = verdict(app.state, final=True)
        words = (summary(app.state), *(final_words(app.state, judged) if broken else ()))
        _print(filter(None, words), code, log)
        return code or (0 if judged.kept else broken)


def _show(source: Source, view: View, command: Callable[[], str] = lambda: "") -> int:
    make = partial(DynaApp, source, view, command_line=command)
    with _ran(make, view, mouse=view.mouse, close=_close) as (app, code, log, ended):
        return _finish(app, code, log, command, ended=ended)


@contextmanager
def _ran(
    make: Callable[..., A], view: View, *, mouse: bool, close: Callable[[A], bool] = lambda _: True
) -> Iterator[tuple[A, int, Path, bool]]:
    """Runs an app; after its end, starts the deadline of the exit and calls `close`. Yields the app, its exit code, the
    path of the log, and the return value of `close`; if the terminal is lost, ends the process instead.
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
        closed = close(app)
        if terminal_lost:
            os._exit(code)  # the terminal is closed, so the flush of a normal exit could block
        yield app, code, log, closed


def _close(app: DynaApp) -> bool:
    app.remember_file(app.source.recorded)
    app.aside.wait(_ASIDE_S)
    return app.source.close(_WAIT_S)


def _print(lines: Iterable[str], code: int, log: Path) -> None:
    """Prints lines on the normal screen; after a bug, asks for a report of it instead."""
    if code == _FAULT:
        streams.say(f"stopped because of a bug; please report what {log} says")
        return
    out, _ = streams.for_printing()
    with suppress(OSError):  # a closed terminal cannot show them
        out.writelines(f"{line}\n" for line in lines)
        out.flush()


def _finish(app: DynaApp, code: int, log: Path, command: Callable[[], str], *, ended: bool) -> int:
    """Prints the summary and returns the exit code; if the source is still running, ends the process at once."""
    width = shutil.get_terminal_size().columns
    _print(lines(app.event_reader.session_log, app.written_paths, command(), width), code, log)
    if app.aside.busy:
        remedy = "next time, quit only after the note that files are exported"
        streams.say(f"an export was cut off and lacks files; {remedy}")
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
