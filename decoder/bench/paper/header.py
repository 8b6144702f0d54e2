"""How a measurement begins, or goes on: on such a machine as it began on, whichever commit measures by now.

A log in which nothing is missing is shown anywhere.
"""

from decoder.bench.machine import examined, source_commit, utc_now
from decoder.bench.on_pair import Note
from decoder.bench.paper.costs import round_costs
from decoder.bench.paper.log import PaperLog
from decoder.bench.paper.records import Header, Resumed
from decoder.bench.paper.request import Request
from decoder.models.pair import Pair


def header(pair: Pair, request: Request, log: PaperLog, tokens: int, note: Note) -> Header:
    """The log's first line, which is written now if there is none.

    Args:
        pair: What decodes.
        request: Experiments, lanes and texts.
        log: What was measured before.
        tokens: Of the longest text, after which passes are timed.
        note: Hears what takes long.

    Raises:
        ConfigError: The log is of something else or of another machine, or cannot be written.
    """
    before = log.header
    note("measuring forward passes" if before is None else f"going on: {len(log.blocks)} blocks are measured already")
    now = Header(
        started_at=utc_now(),
        commit=source_commit(),
        machine=examined(pair.target.device),
        request=request,
        costs=before.costs if before else round_costs(pair, tokens),
        context=pair.context,
    )
    complete = len(log.blocks) >= request.block_count
    first = log.begin(now, complete=complete)
    if before and not complete:
        _note_version(log, before, now)
    return first


def _note_version(log: PaperLog, before: Header, now: Header) -> None:
    """Adds a record where another commit or version of dynatui measured last."""
    first, this = ((each.commit, each.machine.versions["dynatui"]) for each in (before, now))
    last = [first, *((each.commit, each.version) for each in log.resumed)][-1]
    if this != last:
        commit, version = this
        log.add(Resumed(at=now.started_at, commit=commit, version=version))
