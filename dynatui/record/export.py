"""Exports a run to files for other programs, each written atomically in a new private folder."""

import csv
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from io import StringIO
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import TypeAlias

from msgspec import structs

from decoder.analysis.metrics import drafted_nodes, fold
from decoder.errors import DecoderError, RecordingError, shortened
from decoder.events import Event, Figures, Round, Run, Summary, encode
from dynatui.clean import clean, clean_line
from dynatui.files import write_whole
from dynatui.record.recording import first_free, recordings_folder
from dynatui.record.transcript import Transcript
from dynatui.state.timeline import run_so_far

Make: TypeAlias = Callable[[], bytes]
"""Returns the content of a file; may be slow for a long run."""

_FORMULA = ("=", "+", "-", "@")
"""First characters of a cell that spreadsheets read as a formula, which could start programs."""
_new = partial(Path.mkdir, mode=0o700, parents=True)


class ExportError(DecoderError): ...


def files_of(events: Sequence[Event], svg: str, command: str) -> dict[str, Make]:
    """Functions that return the files' contents, by file name, the fastest first; raises ExportError without a run."""
    run = run_so_far(events)
    if not run:
        raise ExportError("there is no run to export yet; try again after the first token")
    return {
        "screen.svg": svg.encode,
        "command.txt": f"{clean(command)}\n".encode,
        "run.jsonl": lambda: b"".join(map(encode, run)),
        "text.txt": lambda: text(run).encode(),
        "figures.json": lambda: figures_json(run).encode(),
        "figures.csv": lambda: figures_csv(run).encode(),
        "rounds.csv": lambda: rounds_csv(run).encode(),
    }


def new_folder(folder: Path | None = None, now: datetime | None = None) -> Path:
    """Makes `folder`. If it is None, makes a folder named by the time, in the working directory or, if that fails, in
    the recordings folder. Raises ExportError if no folder can be made.
    """
    if folder is not None:
        try:
            _new(folder)
        except FileExistsError:
            raise ExportError(f"{shortened(folder)} exists already and is not overwritten; give a new name") from None
        except OSError as error:
            raise _unwritable(folder, error) from None
        return folder
    stem = f"dynatui-{now or datetime.now().astimezone():%Y%m%d-%H%M%S}"
    for parent in (Path.cwd, recordings_folder):
        try:
            return first_free(parent(), stem, "", _new, _unwritable)
        except (ExportError, RecordingError, OSError) as error:
            fault = error
    raise ExportError(str(fault)) from None


def fill(folder: Path, files: Mapping[str, Make]) -> None:
    """Writes the files; each gets its final name when it is complete. If writing fails, the folder is deleted."""
    for name, make in files.items():
        content = make()
        try:
            write_whole(folder / name, content, mode=0o600)
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise _unwritable(folder, error) from None


def figures_json(events: Iterable[Event]) -> str:
    """The run as `dynatui replay --json` prints it."""
    out = StringIO()
    transcript = Transcript(out, StringIO(), as_json=True)
    for event in events:
        transcript.feed(event)
    transcript.finish()
    return out.getvalue()


def figures_csv(events: Sequence[Event]) -> str:
    summary = next((event for event in reversed(events) if isinstance(event, Summary)), None)
    race = fold(events)
    figures = race.figures() if summary is None else race.judged(summary.methods)
    rows = ((_text(name), *structs.astuple(row)) for name, row in figures.items())
    return _table(("method", *Figures.__struct_fields__), rows)


def rounds_csv(events: Iterable[Event]) -> str:
    rounds = (event for event in events if isinstance(event, Round))
    return _table(tuple(ROUND_COLUMNS), ([value(event) for value in ROUND_COLUMNS.values()] for event in rounds))


def text(events: Sequence[Event]) -> str:
    run = next(event for event in events if isinstance(event, Run))
    watched = next(iter(run.methods), "")
    written = (event.text for event in events if isinstance(event, Round) and event.method == watched)
    return clean("".join(chain((run.prompt,), written, ("\n",))))


def _text(foreign: str) -> str:
    """The text without control characters, and with a leading ' if a spreadsheet would read it as a formula."""
    name = clean_line(foreign)
    return f"'{name}" if name.lstrip().startswith(_FORMULA) else name


def _if_reported(value: Callable[[Round], int]) -> Callable[[Round], int | None]:
    return lambda event: None if event.draft_forwards is None else value(event)


ROUND_COLUMNS: Mapping[str, Callable[[Round], object]] = {
    "method": lambda event: _text(event.method),
    **{name: attrgetter(name) for name in ("round", "position", "t")},
    "drafted": _if_reported(drafted_nodes),
    "accepted": _if_reported(lambda event: len(event.accepted)),
    "committed": lambda event: len(event.committed),
    **{name: attrgetter(name) for name in ("draft_s", "verify_s", "commit_s", "stalled_s", "waited_s")},
    "tau_h": lambda event: event.knobs and event.knobs.tau_h,
    "tau_l": lambda event: event.knobs and event.knobs.tau_l,
    "d0": lambda event: event.knobs and event.knobs.d0,
}


def _table(head: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    out = StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(head)
    table.writerows([str(value).lower() if isinstance(value, bool) else value for value in row] for row in rows)
    return out.getvalue()


def _unwritable(path: Path, error: OSError) -> ExportError:
    return ExportError(f"cannot write {shortened(path)}: {error.strerror}; start dynatui in a folder with free space")
