"""Records of a measurement, one per line of the log: a header, then blocks of turns. Independent of models."""

import msgspec

from decoder.bench.machine import Machine
from decoder.bench.paper.request import Request
from decoder.events import Figures

SCHEMA = 1


class RoundCosts(msgspec.Struct, frozen=True, kw_only=True):
    """Cost curve of the machine: seconds of forward passes by their number of rows, the tokens that they compute."""

    rows: tuple[int, ...]
    verify_s: tuple[float, ...]
    """Seconds of a target pass for each number in `rows`."""
    draft_s: tuple[float, ...]
    """Seconds of a draft pass for each number in `rows`."""


class Header(msgspec.Struct, frozen=True, kw_only=True, tag="begun"):
    """First line of the log: request, machine and times of forward passes."""

    schema: int = SCHEMA
    started_at: str
    """Start of the measurement, UTC in ISO 8601."""
    commit: str | None
    """Git commit of the source tree, with -dirty if files were changed since; None outside of a git checkout."""
    machine: Machine
    request: Request = msgspec.field(name="asked")
    costs: RoundCosts
    context: int
    """Context length of the pair, in tokens."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """Turn: result of one lane on one prompt."""

    lane: str
    at: tuple[Figures, ...]
    """Figures at each of `Experiment.lengths`, compared with `ar`'s in the same block, with verdicts on near ties.

    Only the last figures have the peak memory, which was measured over the entire turn.
    """
    kv_bytes: int | None
    """Allocated bytes of the target's and the draft's KV caches; None if unknown."""
    waited: float | None
    """Fraction of the turn's time that threads waited for a processor; None if unknown."""


class Block(msgspec.Struct, frozen=True, kw_only=True, tag="block"):
    """Block: results of all lanes of an experiment on one prompt; a measurement resumes with the next missing block."""

    experiment: int
    """Index of the experiment in `Request.experiments`."""
    prompt: int
    repeat: int
    prompt_tokens: int
    turns: tuple[Turn, ...]
    load: float | None = None
    """Load average over the last minute of the block; None if unknown."""


class Resumed(msgspec.Struct, frozen=True, kw_only=True, tag="resumed"):
    """Record that the measurement was resumed by another commit or version of dynatui."""

    at: str
    """Time of the resumption, UTC in ISO 8601."""
    commit: str | None
    """Git commit of the source tree, as in `Header`."""
    version: str
    """Version of dynatui that resumed the measurement."""


def has_text_of(figures: Figures, plain: Figures) -> bool:
    """Whether a lane's text equals plain decoding's, including its length.

    If the text may differ by design, only the lengths are compared.
    """
    return figures.identical_to_ar is not False and figures.committed == plain.committed
