"""What is kept of a measurement, a line of a file each: its beginning, then every block of turns. Knows no models."""

import msgspec

from decoder.bench.machine import Machine
from decoder.bench.paper.request import Request
from decoder.events import Figures

SCHEMA = 1


class RoundCosts(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that passes took on this machine, by their rows: the machine's cost curve."""

    rows: tuple[int, ...]
    verify_s: tuple[float, ...]
    """One target pass over so many rows."""
    draft_s: tuple[float, ...]
    """One draft pass over so many rows."""


class Header(msgspec.Struct, frozen=True, kw_only=True, tag="begun"):
    """The first line: what is measured, and where."""

    schema: int = SCHEMA
    started_at: str
    """UTC, ISO 8601."""
    commit: str | None
    """Of the source tree, where dynatui runs from one; with -dirty where that was changed since."""
    machine: Machine
    request: Request = msgspec.field(name="asked")
    costs: RoundCosts
    context: int
    """Tokens that the pair can hold."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One lane decoded one prompt."""

    lane: str
    at: tuple[Figures, ...]
    """Its figures by `Experiment.lengths`; compared with ar's of the same block, near ties judged. Only the last tells
    the peak of memory, which is of the whole turn."""
    kv_bytes: int | None
    """Keys and values of both models as allocated, where it is known."""
    waited: float | None
    """Time that threads waited for a processor, over the turn's, where it is known."""


class Block(msgspec.Struct, frozen=True, kw_only=True, tag="block"):
    """All lanes of an experiment on one prompt, side by side: the unit that a stopped measurement repeats."""

    experiment: int
    """Its number in `Asked.experiments`."""
    prompt: int
    repeat: int
    prompt_tokens: int
    turns: tuple[Turn, ...]
    load: float | None = None
    """Processes that wanted a processor, over the last minute; None where it is not known."""


class Resumed(msgspec.Struct, frozen=True, kw_only=True, tag="resumed"):
    """From here on another state of dynatui measured."""

    at: str
    """UTC, ISO 8601."""
    commit: str | None
    """See `Begun`."""
    version: str
    """Of dynatui."""


def has_text_of(found: Figures, plain: Figures) -> bool:
    """Whether a lane's text is that of plain decoding; one of another length is another text.

    A text that was not compared, since it may be another one, is told apart by its length alone.
    """
    return found.identical_to_ar is not False and found.committed == plain.committed
