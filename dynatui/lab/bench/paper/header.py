"""Starts a new log, or checks that an existing log can be resumed.

An incomplete log can be resumed only on the machine on which it was started, but the commit of the source may differ. A
complete log can be shown on any machine.
"""

from decoder.models.pair import Pair
from dynatui.lab.bench.machine import source_commit
from dynatui.lab.bench.on_pair import Note
from dynatui.lab.bench.paper.costs import cost_curve
from dynatui.lab.bench.paper.records import Header, PaperLog, PaperRequest, Resumed, blocks_of
from dynatui.lab.bench.record_log import header_now


def header(pair: Pair, request: PaperRequest, log: PaperLog, tokens: int, note: Note) -> Header:
    """Header of the log; for a new log, it is written, with times of forward passes after `tokens` tokens of text.

    Raises:
        ConfigError: The log was started with another request or on another machine, or cannot be written.
    """
    before, count = log.header, len(blocks_of(log))
    if before is not None:
        note(f"resuming: {count} blocks are measured already")
    now = header_now(
        log,
        request,
        pair.target.device,
        lambda: cost_curve(pair, tokens),
        note,
        commit=source_commit(),
        context=pair.context,
    )
    complete = count >= request.block_count
    first = log.begin(now, complete=complete)
    if before and not complete:
        _note_version(log, before, now)
    return first


def _note_version(log: PaperLog, before: Header, now: Header) -> None:
    """Adds a record to the log if the log's latest results are from another commit or version of dynatui."""
    first, this = ((each.commit or None, each.machine.versions["dynatui"]) for each in (before, now))
    last = [first, *((each.commit, each.version) for each in log.of(Resumed))][-1]
    if this != last:
        commit, version = this
        log.add(Resumed(at=now.started_at, commit=commit, version=version))
