"""Records of a measurement, a line of the log each: a header, then blocks of turns. Knows no models."""

import msgspec

from decoder.bench.machine import Machine
from decoder.bench.paper.request import Request
from decoder.events import Figures

SCHEMA = 1


class RoundCosts(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of passes on this machine by rows: the machine's cost curve."""

    rows: tuple[int, ...]
    verify_s: tuple[float, ...]
    """Seconds of a target pass, by `rows`."""
    draft_s: tuple[float, ...]
    """Seconds of a draft pass, by `rows`."""


class Header(msgspec.Struct, frozen=True, kw_only=True, tag="begun"):
    """First line: request, machine and pass costs."""

    schema: int = SCHEMA
    started_at: str
    """UTC, ISO 8601."""
    commit: str | None
    """Commit of the source tree, with -dirty where it was changed since; None outside of a git checkout."""
    machine: Machine
    request: Request = msgspec.field(name="asked")
    costs: RoundCosts
    context: int
    """Context of the pair, in tokens."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one lane on one prompt."""

    lane: str
    at: tuple[Figures, ...]
    """Figures by `Experiment.lengths`, compared with ar's of the same block, near ties judged. Only the last has
    the peak of memory, which is of the whole turn."""
    kv_bytes: int | None
    """Allocated bytes of both models' KV caches; None where unknown."""
    waited: float | None
    """Share of the turn that threads waited for a processor; None where unknown."""


class Block(msgspec.Struct, frozen=True, kw_only=True, tag="block"):
    """Results of all lanes of an experiment on one prompt, side by side: the unit in which a measurement resumes."""

    experiment: int
    """Index in `Request.experiments`."""
    prompt: int
    repeat: int
    prompt_tokens: int
    turns: tuple[Turn, ...]
    load: float | None = None
    """Load average over the last minute; None where unknown."""


class Resumed(msgspec.Struct, frozen=True, kw_only=True, tag="resumed"):
    """Resumption by another commit or version of dynatui."""

    at: str
    """UTC, ISO 8601."""
    commit: str | None
    """Commit, see `Header`."""
    version: str
    """Version of dynatui."""


def has_text_of(figures: Figures, plain: Figures) -> bool:
    """Whether a lane's text is plain decoding's; a text of another length is not.

    A text that may differ by design is not compared; its length alone decides.
    """
    return figures.identical_to_ar is not False and figures.committed == plain.committed
