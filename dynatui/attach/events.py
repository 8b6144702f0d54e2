"""What is seen of a server, as events: one JSON object a line, alike on standard output and in recordings.

A file that is written live can be read up to its last complete line. What a server does not tell is null, never 0.
Token counts are counts, `seconds` and `t` are seconds. Knows neither how pages are read nor who shows them.
"""

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from decoder.errors import RecordingError
from decoder.events import Base, Count, Seconds

SCHEMA = 4
"""Of a session's first line. Readers of runs alone know schemas up to 2, and say that a newer dynatui wrote this; in 3
there is neither `drafting` nor `wasted`."""
LARGEST = 1e15
MOST_POSITIONS = 256
MOST_MODELS = 32
MOST_ROUNDS = 2**16
LONGEST_NAME = 2**10
"""Characters."""
LONGEST_TEXT = 2**20

Figure: TypeAlias = Annotated[float, Meta(ge=0, le=LARGEST)]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Name: TypeAlias = Annotated[str, Meta(max_length=LONGEST_NAME)]
Text: TypeAlias = Annotated[str, Meta(max_length=LONGEST_TEXT)]


class Opening(Base, tag="attach", frozen=True, kw_only=True):
    """A session begins."""

    schema: int = SCHEMA
    version: Name
    started_at: Name
    """UTC, ISO 8601."""
    url: Name
    """Without a query, which may hold a secret."""
    interval_s: Annotated[float, Meta(gt=0, le=LARGEST)]


class Server(Base, tag="server", frozen=True, kw_only=True):
    """A server was recognised by its page, or it serves other models now."""

    t: Seconds
    """Since the session began, here and below."""
    kind: Name
    """As `dynatui.attach.servers` names it."""
    url: Name
    """The page that is read."""
    models: Annotated[list[Name], Meta(max_length=MOST_MODELS)]


class Figures(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What happened in some time; `dynatui.attach.figures` defines each figure."""

    seconds: Figure
    drafts: Count | None = None
    """Rounds: drafts that the target has verified."""
    drafted: Count | None = None
    accepted: Count | None = None
    generated: Count | None = None
    tokens_per_round: Figure | None = None
    """L-bar, or mean acceptance length: with the target's own token."""
    acceptance_rate: Share | None = None
    acceptance_by_position: Annotated[list[Share | None], Meta(max_length=MOST_POSITIONS)] = []
    """The share of rounds in which the token at each place of the draft was accepted."""
    drafted_per_second: Figure | None = None
    accepted_per_second: Figure | None = None
    tokens_per_second: Figure | None = None


class Drafting(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a server drafts at the moment, where it tells that."""

    steps: Count | None = None
    """Passes of the draft in a round."""
    draft_tokens: Count | None = None
    """Tokens that a round verifies, the place of the target's own token among them."""
    cap_length: Figure | None = None
    """Mean of what a round verifies of them where it may verify fewer, with the target's own place."""
    block_accept_length: Figure | None = None
    """Mean acceptance length if all of each draft had been verified, with the target's own token."""


class Wasted(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Drafts are verified, and next to nothing of them is accepted; `dynatui.attach.waste` says when."""

    since: Seconds
    """Of the session, as the counts and figures are of the time since then."""
    drafts: Count
    drafted: Count
    accepted: Count
    tokens_per_round: Figure
    acceptance_rate: Share


class Reading(Base, tag="reading", frozen=True, kw_only=True):
    """A page was read."""

    t: Seconds
    restarted: bool = False
    """Whether counters fell since the page before: the server has begun anew."""
    interval: Figures
    """Since the page before; of 0 seconds for the first."""
    session: Figures
    """Since the first page of the session."""
    drafting: Drafting | None = None
    """None where the server does not tell it, as `wasted` where drafts are accepted or nothing is known."""
    wasted: Wasted | None = None


class Gap(Base, tag="gap", frozen=True, kw_only=True):
    """No page could be read."""

    t: Seconds
    reason: Text
    """One line: what is wrong, and what to do where that is known."""


class Asked(Base, tag="request", frozen=True, kw_only=True):
    """A request of ours was sent."""

    t: Seconds
    prompt: Text
    max_new_tokens: Count


class Answer(Base, tag="answer", frozen=True, kw_only=True):
    """A server has answered a request of ours, or has not."""

    t: Seconds
    seconds: Figure
    """From the request to the whole answer."""
    model: Name
    prompt: Text
    text: Text = ""
    error: Text = ""
    """Why there is no answer."""
    generated: Count | None = None
    """Tokens, here and below."""
    rounds: Count | None = None
    drafted: Count | None = None
    accepted: Count | None = None
    tokens_per_round: Figure | None = None
    acceptance_rate: Share | None = None
    drafted_by_round: Annotated[tuple[Count, ...], Meta(max_length=MOST_ROUNDS)] = ()
    """Empty where the server does not tell rounds one by one."""
    accepted_by_round: Annotated[tuple[Count, ...], Meta(max_length=MOST_ROUNDS)] = ()

    def __post_init__(self) -> None:
        if len(self.drafted_by_round) != len(self.accepted_by_round):
            raise ValueError("drafted_by_round and accepted_by_round must have one entry a round")


Event: TypeAlias = Opening | Server | Reading | Gap | Asked | Answer

_decoder = msgspec.json.Decoder(Event)


class _Head(msgspec.Struct):
    type: str | None = None
    schema: int = SCHEMA


_head_decoder = msgspec.json.Decoder(_Head)


def is_opening(line: bytes) -> bool:
    """Whether a line begins a session, of this schema or another."""
    try:
        return _head_decoder.decode(line).type == "attach"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def decode_line(line: bytes, number: int) -> Event:
    """The event on line `number` (from 1).

    Raises:
        RecordingError: The line is no event of this schema; the message names the line.
    """
    try:
        head = _head_decoder.decode(line)
        if head.schema > SCHEMA:
            raise RecordingError(
                f"line {number}: written by a newer dynatui (schema {head.schema}, this one reads {SCHEMA}); "
                "update dynatui"
            )
        event: Event = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecordingError(f"line {number}: {error}; is this a recording made by dynatui attach --record?") from None
    return event
