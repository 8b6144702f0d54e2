"""Request of a measurement, records of the log (one block of turns per line), and the header, which is written when a
log begins and checked when a measurement resumes.
"""

from typing import Any, Literal, TypeAlias

import msgspec

from decoder.events import Figures
from decoder.models.pair import Pair
from decoder.version import VERSION
from dynatui.lab.bench import Note, PairRequest
from dynatui.lab.bench.data_sets import TextSet
from dynatui.lab.bench.machine import repeated_costs, source_commit, utc_now
from dynatui.lab.bench.record_log import LogFormat, LogHeader, RecordLog, begun

Unit = Literal["characters", "tokens"]
"""Unit of prompt lengths; the paper's L_max counts characters."""


class PaperLane(msgspec.Struct, frozen=True, kw_only=True):
    """Lane: a decoding method with its parameters, shown as a row of the tables."""

    name: str
    """Unique name, such as `ar`, `linear K=8`, `fixed D8 B3` or `phase 2`."""
    method: str
    """Name of a registered method, or `generate` or `assisted`, which are methods of transformers."""
    family: str
    """Group of similar lanes, such as `linear`, `fixed` or `hf`, which have the same colour in figures."""
    parameters: dict[str, Any]
    paper_name: str | None = None
    """Name of the corresponding row of the paper's tables (see `published.csv`); None if there is no such row."""
    own_text: bool = False
    """Whether the lane's text may differ from the text of `ar` by design; if so, the texts are not compared."""


class PaperExperiment(msgspec.Struct, frozen=True, kw_only=True):
    """Experiment: lanes that decode the same prompts of one data set, one after the other on each prompt."""

    name: str
    """`main`, `prompt_length`, `sensitivity` or `fixed_trees`."""
    data_set: str
    most: int
    """Maximum prompt length, in `unit`."""
    unit: Unit = "characters"
    prompts: int
    """Number of prompts, taken from the beginning of the data set."""
    lanes: tuple[str, ...]
    """Names of the lanes; the first lane is plain decoding, `ar`."""
    lengths: tuple[int, ...]
    """Text lengths, in new tokens and ascending order, at which results are recorded; all texts have the last length.

    The first T tokens of a greedy text do not depend on its final length, so one decoding gives the results at all
    lengths.
    """
    repeats: int = 1


class PaperRequest(PairRequest, frozen=True, kw_only=True):
    """Everything that determines the results; a log can only be resumed with an equal request."""

    temperature: float
    top_p: float
    stops_at_eos: bool
    """Whether a text ends at the end-of-text token; the paper ignores the token (False)."""
    warm_up: int
    """Number of prompts that every lane decodes as warm-up before each experiment, without recording results."""
    text_sets: tuple[TextSet, ...]
    """Data sets, truncated to what the experiments read."""
    lanes: tuple[PaperLane, ...]
    experiments: tuple[PaperExperiment, ...]

    @property
    def block_count(self) -> int:
        return sum(each.prompts * each.repeats for each in self.experiments)

    def lane(self, name: str) -> PaperLane:
        return next(lane for lane in self.lanes if lane.name == name)

    def text_set(self, name: str) -> TextSet:
        return next(each for each in self.text_sets if each.name == name)


SCHEMA = 1


class CostCurve(msgspec.Struct, frozen=True, kw_only=True):
    """Cost curve of the machine: seconds of a forward pass by its number of rows (tokens)."""

    rows: tuple[int, ...]
    verify_s: tuple[float, ...]
    """Seconds of a target pass, for each number in `rows`."""
    draft_s: tuple[float, ...]


class LaneResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one lane on one prompt."""

    lane: str
    at: tuple[Figures, ...]
    """Figures at each of `PaperExperiment.lengths`; only the last figures include the peak memory of the entire turn.

    The figures compare the text with the text of `ar` in the same block, and state whether the first difference is a
    near tie.
    """
    kv_bytes: int | None
    """Allocated bytes of the target's and the draft's KV caches; None if unknown."""
    waited: float | None
    """Waiting time of all threads for a processor, divided by the turn's time; None if unknown."""


class PromptResult(msgspec.Struct, frozen=True, kw_only=True, tag="block"):
    """Block: results of all lanes of an experiment on one prompt. A resumed measurement skips recorded blocks."""

    experiment: int
    """Index of the experiment in `PaperRequest.experiments`."""
    prompt: int
    repeat: int
    prompt_tokens: int
    turns: tuple[LaneResult, ...]
    load: float | None = None
    """Load average over the last minute of the block; None if unknown."""


class Resumed(msgspec.Struct, frozen=True, kw_only=True, tag="resumed"):
    """Record that another commit or version of dynatui resumed the measurement."""

    at: str
    """Time of the resumption, UTC in ISO 8601."""
    commit: str | None
    version: str


Header: TypeAlias = LogHeader[PaperRequest, CostCurve]
Record: TypeAlias = PromptResult | Resumed
PaperLog: TypeAlias = RecordLog[Header, Record]
FORMAT: LogFormat[Header, Record] = LogFormat(
    msgspec.json.Decoder(Header | Record), SCHEMA, "set --output to another folder"
)


def blocks_of(log: PaperLog) -> list[PromptResult]:
    """All blocks; if two processes measured the same block, only its first record is returned."""
    blocks: dict[tuple[int, int, int], PromptResult] = {}
    for block in log.of(PromptResult):
        blocks.setdefault((block.experiment, block.prompt, block.repeat), block)
    return list(blocks.values())


ROWS = (1, 2, 4, 8, 16, 32, 64)


def cost_curve(pair: Pair, tokens: int) -> CostCurve:
    """Lowest measured seconds of target and draft passes after about `tokens` tokens of text."""
    series = repeated_costs(pair, tokens)
    return CostCurve(
        rows=ROWS,
        verify_s=tuple(
            min(costs.verify.seconds(rows) if rows > 1 else costs.plain_s() for costs in series) for rows in ROWS
        ),
        draft_s=tuple(min(costs.draft.seconds(rows) for costs in series) for rows in ROWS),
    )


def header(pair: Pair, request: PaperRequest, log: PaperLog, tokens: int, note: Note) -> Header:
    """Header of the log. A new log first gets a header, with times of forward passes after `tokens` tokens of text.

    If another commit or version of dynatui than the last one resumes the log, this is recorded.
    """
    before, count = log.header, len(blocks_of(log))
    if before is not None:
        note(f"resuming: {count} blocks are measured already")
    commit, complete = source_commit(), count >= request.block_count
    first = begun(
        log,
        request,
        pair.target.device,
        lambda: cost_curve(pair, tokens),
        note,
        complete=complete,
        commit=commit,
        context=pair.context,
    )
    known = first.commit or None, first.machine.versions["dynatui"]
    last = [known, *((each.commit, each.version) for each in log.of(Resumed))][-1]
    if before and not complete and last != (commit, VERSION):
        log.add(Resumed(at=utc_now(), commit=commit, version=VERSION))
    return first
