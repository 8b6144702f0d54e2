"""Tells what a file or folder is by what it holds, and hands it to the page for that.

A recording begins with a run, a measurement of `bench speed` with its setup, a report of `bench paper` with what it
began with. Knows no HTML.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from decoder.errors import ConfigError, RecordingError, shortened
from decoder.events import Event
from dynatui.files import opened
from dynatui.record.reader import Runs
from dynatui.record.recording import LONGEST_LINE
from dynatui.report.page import Page
from dynatui.report.replay import replay_page

REPORT = "report.json"
_REMEDY = "give a recording, a file of bench speed --json, or a folder of bench paper --output"


def page_of(path: Path, run: int | None = None) -> Page:
    """The page of a recording or a benchmark.

    Args:
        path: A file or a folder.
        run: Of a recording only this run, counted from 1; None: all.

    Raises:
        DecoderError: It is neither, cannot be read, or has no such run.
    """
    return replay_page(path.name, _chosen(path, Runs(path), run))


def _chosen(path: Path, runs: Runs, number: int | None) -> Sequence[Sequence[Event]]:
    if number is None:
        return runs
    if number > len(runs):
        raise ConfigError(f"{shortened(path)} holds {len(runs)} runs; let --run be 1 to {len(runs)}")
    return runs[number - 1 : number]
