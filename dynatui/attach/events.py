"""Events of a watched server, as one JSON object per line, both on standard output and in recordings.

A file that is still being written can be read up to its last complete line. A figure that the server does not report is
null, never 0. `seconds` and `t` are in seconds. Knows neither how pages are read nor how events are shown.
"""

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from decoder.errors import RecordingError, in_one_line, shortened
from decoder.events import Base, Count

SCHEMA = 4
"""Version of this schema, in the first line of a session. Schema 3 has neither `drafting` nor `wasted`. Versions of
dynatui without `attach` read schemas 1 and 2 only, so they report that a newer dynatui wrote the recording."""
LARGEST = 1e15
MOST_POSITIONS = 256
MOST_MODELS = 32
MOST_ROUNDS = 2**16
LONGEST_NAME = 2**10
"""Maximum length of a name or URL, in characters."""
LONGEST_TEXT = 2**20

Figure: TypeAlias = Annotated[float, Meta(ge=0, le=LARGEST)]
Seconds: TypeAlias = Figure
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Name: TypeAlias = Annotated[str, Meta(max_length=LONGEST_NAME)]
Text: TypeAlias = Annotated[str, Meta(max_length=LONGEST_TEXT)]


class Opening(Base, tag="attach", frozen=True, kw_only=True):
    """Start of a session of watching a server."""

    schema: int = SCHEMA
    version: Name
    started_at: Name
    """Start time of the session in UTC, in ISO 8601."""
    url: Name
    """The server's URL without its query, since the query may contain a secret."""
    interval_s: Annotated[float, Meta(gt=0, le=LARGEST)]


class Server(Base, tag="server", frozen=True, kw_only=True):
    """The server that was recognised by its metrics. The event is repeated when the server's kind or models change."""

    t: Seconds
    """Time of the event, in seconds since the start of the session; all events below have this field."""
    kind: Name
    """Name of the server's kind, a key of `KINDS` in `dynatui.attach.servers`."""
    url: Name
    """URL of the metrics page."""
    models: Annotated[list[Name], Meta(max_length=MOST_MODELS)]


class Figures(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Counts and figures of an interval; `dynatui.attach.figures` defines each figure."""

    seconds: Figure
    drafts: Count | None = None
    """Number of rounds: drafts that the target verified."""
    drafted: Count | None = None
    accepted: Count | None = None
    generated: Count | None = None
    tokens_per_round: Figure | None = None
    """Block efficiency L-bar, or mean acceptance length: tokens per round, including the target's own token."""
    acceptance_rate: Share | None = None
    acceptance_by_position: Annotated[list[Share | None], Meta(max_length=MOST_POSITIONS)] = []
    """For each draft position, the share of rounds in which the token at that position was accepted."""
    drafted_per_second: Figure | None = None
    accepted_per_second: Figure | None = None
    tokens_per_second: Figure | None = None


class Drafting(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Current draft settings of the server; None for a setting that the server does not report."""

    steps: Count | None = None
    """Forward passes of the draft model per round."""
    draft_tokens: Count | None = None
    """Positions verified per round, including the position of the target's own token."""
    cap_length: Figure | None = None
    """Mean number of verified positions per round, including the position of the target's own token; None if every
    round verifies `draft_tokens` positions."""
    block_accept_length: Figure | None = None
    """Mean acceptance length if every draft were verified in full; includes the target's own token."""


class Wasted(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Counts of wasted drafts, whose tokens are almost all rejected. `dynatui.attach.waste` defines the criterion."""

    since: Seconds
    """Time at which drafts became wasted, in seconds since the start of the session. The counts and figures below cover
    the time since then.
    """
    drafts: Count
    drafted: Count
    accepted: Count
    tokens_per_round: Figure
    acceptance_rate: Share


class Reading(Base, tag="reading", frozen=True, kw_only=True):
    """One poll of the metrics page."""

    t: Seconds
    restarted: bool = False
    """Whether counters fell since the previous page, which means that the server has restarted."""
    interval: Figures
    """Figures since the previous page; the first page has an interval of 0 seconds."""
    session: Figures
    """Figures since the first page of the session."""
    drafting: Drafting | None = None
    """Draft settings; None if the server does not report them."""
    wasted: Wasted | None = None
    """Counts of wasted drafts; None if drafts are accepted, or if the number of rounds is unknown."""


class Gap(Base, tag="gap", frozen=True, kw_only=True):
    """A failed poll of the metrics page."""

    t: Seconds
    reason: Text
    """One-line error message: the fault, and the remedy if it is known."""


class RequestSent(Base, tag="request", frozen=True, kw_only=True):
    """A request of the user, sent to the server."""

    t: Seconds
    prompt: Text
    max_new_tokens: Count


class Answer(Base, tag="answer", frozen=True, kw_only=True):
    """The answer to the user's request, or its failure."""

    t: Seconds
    seconds: Figure
    """Seconds from sending the request to receiving the complete answer."""
    model: Name
    prompt: Text
    text: Text = ""
    error: Text = ""
    """Error message; empty if the request succeeded."""
    generated: Count | None = None
    """Number of generated tokens; the fields below count rounds, drafted tokens and accepted tokens."""
    rounds: Count | None = None
    drafted: Count | None = None
    accepted: Count | None = None
    tokens_per_round: Figure | None = None
    acceptance_rate: Share | None = None
    drafted_by_round: Annotated[tuple[Count, ...], Meta(max_length=MOST_ROUNDS)] = ()
    """Number of drafted tokens in each round; empty if the server reports only totals."""
    accepted_by_round: Annotated[tuple[Count, ...], Meta(max_length=MOST_ROUNDS)] = ()

    def __post_init__(self) -> None:
        if len(self.drafted_by_round) != len(self.accepted_by_round):
            raise ValueError("drafted_by_round and accepted_by_round must have one entry per round")


Event: TypeAlias = Opening | Server | Reading | Gap | RequestSent | Answer

_decoder = msgspec.json.Decoder(Event)


class _Head(msgspec.Struct):
    type: str | None = None
    schema: int = SCHEMA


_head_decoder = msgspec.json.Decoder(_Head)


def is_opening(line: bytes) -> bool:
    """Whether a line is the first line of a session, in any version of the schema."""
    try:
        return _head_decoder.decode(line).type == "attach"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def decode_line(line: bytes, number: int) -> Event:
    """The event on a line; `number` is the line's number in the file, from 1.

    Raises:
        RecordingError: The line is not an event of this schema; the message names the line.
    """
    try:
        head = _head_decoder.decode(line)
        if head.schema > SCHEMA:
            raise RecordingError(
                f"line {number}: a newer dynatui wrote this line (schema {shortened(head.schema)}, this version reads "
                f"{SCHEMA}); update dynatui"
            )
        event: Event = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecordingError(
            f"line {number}: {in_one_line(error)}; give a recording that dynatui attach --record has written"
        ) from None
    return event
