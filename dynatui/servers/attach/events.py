"""Events of a watched server, one JSON object per line, printed and recorded; unreported figures are null."""

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from decoder.errors import RecordingError, in_one_line, shortened
from decoder.events import Base, Count
from dynatui.servers.profile_file import LONGEST_CHAIN, Rate, Rates, StepPoint

SCHEMA = 5
"""Schema 3 lacks `drafting` and `wasted`; schema 4 lacks load, counts by position and findings. Versions without
`attach` read only schemas 1 and 2, so they report that a newer dynatui wrote the recording."""
LARGEST = 1e15
MOST_COUNTED = 2**53
"""Limit of `Count`: a float represents every integer up to here exactly."""
MOST_POSITIONS = 256
MOST_MODELS = 32
MOST_DRAFTS = 64
MOST_POINTS = 64
MOST_ROUNDS = 2**16
LONGEST_NAME = 2**10
LONGEST_TEXT = 2**20

Figure: TypeAlias = Annotated[float, Meta(ge=0, le=LARGEST)]
Seconds: TypeAlias = Figure
Name: TypeAlias = Annotated[str, Meta(max_length=LONGEST_NAME)]
Text: TypeAlias = Annotated[str, Meta(max_length=LONGEST_TEXT)]
ByPosition: TypeAlias = Annotated[tuple[Count, ...], Meta(max_length=MOST_POSITIONS)]


class Opening(Base, tag="attach", frozen=True, kw_only=True):
    schema: int = SCHEMA
    version: Name
    started_at: Name
    """UTC, in ISO 8601."""
    url: Name
    """URL of the server, without the query, which may contain a secret."""
    interval_s: Annotated[float, Meta(gt=0, le=LARGEST)]


class PromisedChain(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A profile's prediction for rounds that draft at most K tokens, in the counts that servers report."""

    rates: Rates
    """Acceptance at positions 1 to K: the share of drafts whose tokens up to the position are all accepted."""
    rounds: Figure
    """Number of independent rounds that would give intervals as wide as those over the profile's prompts."""
    design_effect: Annotated[float, Meta(ge=1, le=LARGEST)]
    """Measured rounds / `rounds`; 1 if rounds of one prompt are independent, larger if they are correlated."""
    drafted: Figure
    """Mean number of tokens of a draft."""


Chains: TypeAlias = Annotated[tuple[PromisedChain, ...], Meta(min_length=1, max_length=LONGEST_CHAIN)]
"""Promises for K = 1, 2, ... drafted tokens."""


class Promise(Base, tag="promise", frozen=True, kw_only=True):
    """The prediction from a profile of prompts with which the server is compared."""

    t: Seconds
    profile: Name
    """Name of the profile's file."""
    draft: Name
    drafts: Annotated[dict[Name, Chains], Meta(min_length=1, max_length=MOST_DRAFTS)]
    """All drafts of the profile, including the deployed `draft`."""
    advised: Annotated[tuple[tuple[Count, Count, Count], ...], Meta(max_length=MOST_POINTS)] = ()
    """(least, most running requests, K), ascending; empty if unknown. K is 0 where no draft pays."""
    plain: Annotated[tuple[StepPoint, ...], Meta(max_length=MOST_POINTS)] = ()
    """Step times of the server without drafts; empty if unknown."""

    def __post_init__(self) -> None:
        chains = ((number, chain) for each in self.drafts.values() for number, chain in enumerate(each, 1))
        if self.draft not in self.drafts or any(len(chain.rates) != number for number, chain in chains):
            raise ValueError("drafts must have the chosen draft, and K rates for chains of K tokens")


class Server(Base, tag="server", frozen=True, kw_only=True):
    """The watched server; the event is repeated when the kind, URL or models change."""

    t: Seconds
    """Seconds since the start of the session, as in all events below."""
    kind: Name
    """A key of `KINDS`."""
    url: Name
    """URL of the metrics page."""
    models: Annotated[list[Name], Meta(max_length=MOST_MODELS)]


class Figures(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Figures of an interval, as `dynatui.servers.attach.figures` defines them."""

    seconds: Figure
    drafts: Count | None = None
    """Rounds: drafts that the target verified."""
    drafted: Count | None = None
    accepted: Count | None = None
    generated: Count | None = None
    tokens_per_round: Figure | None = None
    """Block efficiency L-bar, including the target's own token."""
    acceptance_rate: Rate | None = None
    acceptance_by_position: Annotated[list[Rate | None], Meta(max_length=MOST_POSITIONS)] = []
    """Accepted / drafted tokens at each position; accepted tokens / rounds if `drafted_by_position` is empty."""
    accepted_by_position: ByPosition = ()
    drafted_by_position: ByPosition = ()
    """Empty if the server does not report these counts."""
    drafted_per_second: Figure | None = None
    accepted_per_second: Figure | None = None
    tokens_per_second: Figure | None = None
    engine_steps: Count | None = None
    token_latency_s: Figure | None = None
    """Mean time from one token of a request to the next."""
    step_s: Figure | None = None
    """Mean time from one output of a request to the next, which is the time of a round or of a step without a draft."""


class Drafting(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of drafting; None for a setting that the server does not report."""

    steps: Count | None = None
    """Forward passes of the draft per round."""
    draft_tokens: Count | None = None
    """Positions verified per round, including that of the target's own token."""
    cap_length: Figure | None = None
    """Mean number of verified positions; None if every round verifies `draft_tokens`."""
    block_accept_length: Figure | None = None
    """Mean acceptance length if every draft were verified in full."""


class Load(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Load when the metrics page was read, over all engines on the page."""

    running: Figure | None = None
    """Number of requests that are being decoded."""
    waiting: Figure | None = None
    cache_usage: Rate | None = None
    """Share of the KV cache in use, averaged over the engines."""


class Wasted(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Drafts whose tokens are almost all rejected, by the criteria in `dynatui.servers.attach.figures`."""

    since: Seconds
    """Start of the period that the counts and figures below cover."""
    drafts: Count
    drafted: Count
    accepted: Count
    tokens_per_round: Figure
    acceptance_rate: Rate


class Reading(Base, tag="reading", frozen=True, kw_only=True):
    t: Seconds
    restarted: bool = False
    interval: Figures
    """Figures since the previous reading; the first reading covers 0 seconds."""
    session: Figures
    """Figures since the first reading."""
    drafting: Drafting | None = None
    load: Load | None = None
    wasted: Wasted | None = None
    """None if drafts are not wasted, or if this is unknown."""


class Gap(Base, tag="gap", frozen=True, kw_only=True):
    t: Seconds
    reason: Text


Cause: TypeAlias = Literal[
    "off", "broken", "miswired", "cut short", "slow", "context", "loop", "restart", "length", "below", "unchecked"
]


class Finding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault found by `dynatui.servers.attach.diagnosis`."""

    cause: Cause
    claim: Text
    """Description of the fault, with the figures that show it."""
    remedy: Text


class Findings(Base, tag="findings", frozen=True, kw_only=True):
    """All present findings; the event is repeated when causes change, and at the end if there is a promise."""

    t: Seconds
    kept: bool | None
    """Whether nothing is found; None without a promise, or if the promise could not be checked."""
    findings: Annotated[tuple[Finding, ...], Meta(max_length=MOST_POINTS)]


class RequestSent(Base, tag="request", frozen=True, kw_only=True):
    t: Seconds
    prompt: Text
    max_new_tokens: Count


class Answer(Base, tag="answer", frozen=True, kw_only=True):
    t: Seconds
    seconds: Figure
    """From sending the request to the complete answer."""
    model: Name
    prompt: Text
    text: Text = ""
    error: Text = ""
    """Empty if the request succeeded."""
    generated: Count | None = None
    rounds: Count | None = None
    drafted: Count | None = None
    accepted: Count | None = None
    tokens_per_round: Figure | None = None
    acceptance_rate: Rate | None = None
    drafted_by_round: Annotated[tuple[Count, ...], Meta(max_length=MOST_ROUNDS)] = ()
    """Empty if the server reports only totals."""
    accepted_by_round: Annotated[tuple[Count, ...], Meta(max_length=MOST_ROUNDS)] = ()

    def __post_init__(self) -> None:
        if len(self.drafted_by_round) != len(self.accepted_by_round):
            raise ValueError("drafted_by_round and accepted_by_round must have one entry per round")


Event: TypeAlias = Opening | Promise | Server | Reading | Gap | Findings | RequestSent | Answer

_decoder = msgspec.json.Decoder(Event)


class _Head(msgspec.Struct):
    type: str | None = None
    schema: int = SCHEMA


_head_decoder = msgspec.json.Decoder(_Head)


def is_opening(line: bytes) -> bool:
    """Whether a line is an `Opening`, in any version of the schema."""
    try:
        return _head_decoder.decode(line).type == "attach"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def decode_line(line: bytes, number: int) -> Event:
    """The event on line `number` of a file, from 1; raises a RecordingError that names the line."""
    try:
        head = _head_decoder.decode(line)
        if head.schema > SCHEMA:
            schemas = f"schema {shortened(head.schema)}, this version reads {SCHEMA}"
            raise RecordingError(f"line {number}: a newer dynatui wrote this line ({schemas}); update dynatui")
        event: Event = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        remedy = "give a recording that dynatui attach --record has written"
        raise RecordingError(f"line {number}: {in_one_line(error)}; {remedy}") from None
    return event
