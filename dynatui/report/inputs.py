"""Detects the kind of a file or folder by its content, and makes the page for that kind.

A recording starts with a `run` event. The JSON of `bench speed` has the field `setup`, and the `report.json` of `bench
paper` has the field `begun`. Knows no HTML.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, TypeVar

import msgspec

from decoder.errors import ConfigError, DecoderError, first_line, shortened
from decoder.events import Event
from decoder.json_values import too_large
from dynatui.files import open_folder, opened, opened_within
from dynatui.record.checks import other_form
from dynatui.record.reader import Runs
from dynatui.record.recording import opening_line
from dynatui.report.figures import figures
from dynatui.report.page import Page
from dynatui.report.replay import replay_page

if TYPE_CHECKING:
    from decoder.bench.report import Report, RoundsReport

REPORT = "report.json"
"""Name of the report in a folder of `bench paper`."""
MOST_BYTES = 256 * 2**20
"""Maximum size in bytes of a file from which a page is made."""
_REMEDY = "give a recording, a file written by bench speed --json, or a folder written by bench paper --output"

T = TypeVar("T")


class InputError(DecoderError):
    """No page can be made from the input."""


class _Schema(msgspec.Struct):
    schema: int = 1


class _Opening(msgspec.Struct):
    """The fields of a file's first line that show its kind."""

    type: str | None = None
    setup: _Schema | None = None
    rounds: msgspec.Raw = msgspec.Raw()
    begun: _Schema | None = None


def page_of(path: Path, run: int | None = None) -> Page:
    """The page of a recording or a benchmark.

    Args:
        path: A file or a folder.
        run: Number of one run of a recording, from 1; None: all runs.

    Raises:
        DecoderError: The path is not a recording or benchmark, cannot be read, is too large, or has no such run.
    """
    try:
        kind = "paper" if path.is_dir() else _kind(path)
        if kind == "recording":
            return _of_recording(path, run)
        if run is not None:
            raise ConfigError(f"--run has no effect on {shortened(path)}, which is not a recording; leave --run out")
        return _of_speed(path) if kind == "speed" else _of_paper(path)
    except OSError as error:
        raise _unreadable(path, error) from None


def run_of(path: Path, number: int) -> Sequence[Event]:
    """The run of a recording that has this number; the first run has number 1.

    Raises:
        DecoderError: The file is not a recording, cannot be read, or has no run of this number.
    """
    runs = Runs(path)
    if number > len(runs):
        raise ConfigError(f"{shortened(path)} has no run {number}; give --run at most {len(runs)}")
    return runs[number - 1]


def name_of(path: Path) -> str:
    """Real name of a file or folder, with links, `.` and `..` resolved."""
    return Path(os.path.realpath(path)).name


def page_name(source: Path) -> Path:
    """Default path of a page: in the working directory, with the source's name and the suffix `.html`.

    Raises:
        DecoderError: The path cannot be read.
    """
    name = name_of(source)
    try:
        return Path(f"{name if source.is_dir() else Path(name).stem}.html")
    except OSError as error:
        raise _unreadable(source, error) from None


def require_other_file(source: Path, page: Path) -> None:
    """Raises a ConfigError if a page would overwrite its source."""
    if any(_is_same(page, path) for path in (source, source / REPORT)):
        raise ConfigError(
            f"{shortened(page)} is a source of the page and is not overwritten; set --output to another file"
        )


def _is_same(a: Path, b: Path) -> bool:
    try:
        return a.samefile(b)
    except OSError:  # a missing or unreadable file is reported when it is read or written
        return False


def _unreadable(path: Path, error: OSError) -> InputError:
    return InputError(f"cannot read {shortened(path)}: {error.strerror}; {_REMEDY}")


def _kind(path: Path) -> Literal["recording", "speed", "paper"]:
    """Kind of a file, detected from its first line; a pipe, which cannot be read twice, counts as a recording."""
    if not path.is_file():
        return "recording"
    with opened(path) as file:
        _require_moderate(path, os.fstat(file.fileno()).st_size)
        line = opening_line(file)
    try:
        opening = msgspec.json.decode(line, type=_Opening)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        opening = _Opening()
    if opening.type == "run":
        return "recording"
    if form := other_form(line):
        raise InputError(f"{shortened(path)}: {form}")
    if opening.setup is None and opening.begun is None:
        raise InputError(f"{shortened(path)} is {'empty' if not line else 'no recording and no benchmark'}; {_REMEDY}")
    return "speed" if opening.begun is None else "paper"


def _of_recording(path: Path, number: int | None) -> Page:
    if number is None:
        return replay_page(path.name, Runs(path))
    return replay_page(path.name, [run_of(path, number)], first=number)


def _of_speed(path: Path) -> Page:
    from dynatui.report.speed import speed_page  # noqa: PLC0415 - imports torch

    with opened(path) as file:
        return speed_page(
            path.name,
            [_measurement(path, *numbered_line) for numbered_line in enumerate(file, 1) if numbered_line[1].strip()],
        )


def _measurement(path: Path, number: int, line: bytes) -> "Report | RoundsReport":
    from decoder.bench.report import SCHEMA, Report, RoundsReport  # noqa: PLC0415 - imports torch

    where = f"{shortened(path)}: line {number}"
    opening = _decoded(line, _Opening, where)
    _require_readable(opening.setup or _Schema(), SCHEMA, where)
    return _decoded(line, RoundsReport, where) if bytes(opening.rounds) else _decoded(line, Report, where)


def _of_paper(path: Path) -> Page:
    """Page of a paper report, with the figures in its folder; `path` is the folder or the report in it."""
    from decoder.bench.paper.records import SCHEMA  # noqa: PLC0415 - imports torch
    from decoder.bench.paper.report import PaperReport  # noqa: PLC0415
    from dynatui.report.paper import paper_page  # noqa: PLC0415

    folder = path if path.is_dir() else path.parent
    where = folder / REPORT if path.is_dir() else path
    with open_folder(folder) as descriptor:
        content = _content(_report_of(descriptor, path), where)
        _require_readable(_decoded(content, _Opening, shortened(where)).begun or _Schema(), SCHEMA, shortened(where))
        report = _decoded(content, PaperReport, shortened(where))
        return paper_page(name_of(folder), report, figures(folder, descriptor, MOST_BYTES))


def _report_of(folder: int, path: Path) -> BinaryIO:
    """The report of a paper: the file that the user names, or the regular file in the folder that the user names."""
    if not path.is_dir():
        return opened(path)
    try:
        return opened_within(folder, REPORT)
    except FileNotFoundError:
        raise InputError(f"{shortened(path)} contains no {REPORT}; {_REMEDY}") from None
    except OSError as error:
        raise _unreadable(path / REPORT, error) from None


def _content(file: BinaryIO, path: Path) -> bytes:
    with file:
        _require_moderate(path, os.fstat(file.fileno()).st_size)
        return file.read()


def _decoded(content: bytes, kind: type[T], where: str) -> T:
    try:
        decoded = msgspec.json.decode(content, type=kind)
        beyond = too_large(msgspec.json.decode(content))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{where}: {first_line(error)}; measure again, or {_REMEDY}") from None
    if beyond is not None:
        raise InputError(
            f"{where}: a number is {shortened(beyond)}, beyond all that is measured; measure again, or {_REMEDY}"
        )
    return decoded


def _require_readable(written: _Schema, supported: int, where: str) -> None:
    if written.schema > supported:
        raise InputError(
            f"{where} was written by a newer dynatui (schema {shortened(written.schema)}, this version reads "
            f"{supported}); update dynatui"
        )


def _require_moderate(path: Path, size: int) -> None:
    if size > MOST_BYTES:
        raise InputError(
            f"{shortened(path)} has {size >> 20} MiB, more than the {MOST_BYTES >> 20} MiB that a page can hold; "
            "record fewer prompts in one file"
        )
