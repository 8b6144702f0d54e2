"""The contract between engine, screen, recordings and tests: what happens while decoding, one JSON object a line.

A file that is written live can be read up to its last complete line after any crash. Knows neither models nor screens.
Token counts are counts, `*_s` are seconds, `*_bytes` are bytes.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from decoder.errors import RecordingError
from decoder.knobs import KnobName

SCHEMA = 3

Limit: TypeAlias = str
"""What may end a tree: a knob by its name, or one of `OTHER_LIMITS`."""
LENGTH: Limit = "length"
"""The length that the text may have, which leaves room for no further level."""
OTHER_LIMITS: frozenset[Limit] = frozenset(("cost", "context", LENGTH))
"""Beside that, the cost of more nodes, and the models' context."""

Origin: TypeAlias = Literal["root", "draft", "lookup"]
"""The source of a node: the text, the draft model, or a lookup of what followed in the text before."""

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]


MOST_NAMED = 2
"""Devices of one run that are named one by one; torchrun numbers those of a machine from 0 on, without gaps."""


class Base(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", kw_only=True):
    """Common options of all events."""


class Run(Base, tag="run", frozen=True, kw_only=True):
    """A prompt begins, for all methods of the race."""

    schema: int = SCHEMA
    version: str
    started_at: str
    """UTC, ISO 8601."""
    target: str
    draft: str
    device: str
    dtype: str
    """The target's."""
    draft_dtype: str = ""
    """Empty in older recordings: the target's."""
    exact: bool = False
    """Whether all methods but hf compute a token's logits bit for bit alike."""
    path: str = ""
    """How rounds are decoded: cuda graphs, static module or host; empty in older recordings."""
    path_reason: str = ""
    """Why no faster way was possible; of the fastest, which forward pass computes."""
    ranks: list[str] = []
    """The device of each process that runs the target; empty where one does."""
    seed: int
    temperature: float = 0.0
    """Tokens are sampled at this temperature; 0 is greedy."""
    top_k: Count = 0
    """0: all tokens."""
    top_p: float = 1.0
    verifier: str = "coupled"
    """The verifier: decides which drafted tokens are accepted."""
    drafting: str = "tree"
    """How that verifier's trees come about."""
    prompt: str
    prompt_tokens: list[Count]
    prompt_number: Count = 0
    """Which prompt of the session it is, from 1; 0 where that is unknown."""
    prompt_count: Count = 0
    max_new_tokens: Count
    methods: dict[str, dict[str, Any]]
    """Method name to all its parameters, in the order of the race."""

    @property
    def place(self) -> str:
        """The device, or the processes of the target and theirs."""
        return place(self.device, self.ranks)

    @property
    def arithmetic(self) -> str:
        """The dtype, whether it is exact, and the draft's where that is another."""
        return arithmetic(self.dtype, self.draft_dtype, exact=self.exact)


def place(device: str, ranks: Sequence[str]) -> str:
    """Where a target runs, in words: its device, or the processes that it is spread over and theirs."""
    if not ranks:
        return device
    devices = list(dict.fromkeys(ranks))
    named = devices if len(devices) <= MOST_NAMED else [f"{devices[0]} to {devices[-1]}"]
    return f"{len(ranks)} processes on {', '.join(named)}"


def arithmetic(dtype: str, draft_dtype: str, *, exact: bool = False) -> str:
    """What models compute in, in words, for example: float32 exact, draft bfloat16."""
    own = f", draft {draft_dtype}" if draft_dtype not in ("", dtype) else ""
    return f"{dtype}{' exact' * exact}{own}"


class Start(Base, tag="start", frozen=True, kw_only=True):
    """A method has read the prompt."""

    method: str
    prefill_s: Seconds


class Knobs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The exact values in force in a round."""

    tau_h: float
    tau_l: float
    d0: float


class Draws(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The draws after one node that verification came to."""

    count: Count
    """How many, agreeing ones included."""
    accepted: bool
    """Whether the path went on to one of them."""
    l1: float
    """L1 distance of the target's and the draft's distribution after the node, in [0, 2]."""
    acceptance: float | None
    """The probability that this verifier accepts one of so many draws, over draws; None for verifiers that judge
    whole paths."""
    bound: float
    """alpha*: the largest acceptance probability of any lossless verifier."""


class Verification(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the distributions of a sampled round say of it; sums over its committed tokens.

    With p the target's distribution of a token y and H(p) its entropy, both sums have mean 0 in any lossless decoder.
    """

    surprise: float
    """Sum of -ln p(y) - H(p), in nats."""
    surprise_variance: float
    """Sum of the variances of -ln p(y)."""
    top1: float
    """Sum of [y is the most probable token] - max p."""
    top1_variance: float
    """Sum of max p (1 - max p)."""
    predicted_tokens: float | None = None
    """Drawn trees: tokens that the round was expected to bring, given its tree, over the verifier's coins; None where
    end-of-text cut it."""
    reach: list[float] = []
    """Drawn trees: the probability that each node is accepted, given the tree; 1 for the root."""
    path: list[Draws] = []
    """Drawn trees: of the root and the accepted nodes, those with draws, in path order."""


class Round(Base, tag="round", omit_defaults=True, frozen=True, kw_only=True):
    """One target verification and what it committed.

    Nodes are numbered level by level, parents in order, siblings by falling draft probability, those that were looked
    up last; node 0 is the root. A method without a tree writes the root alone.
    """

    method: str
    round: Count
    """Counts from 0 for each method."""
    position: Count
    """Tokens that this method had generated before this round."""
    t: Seconds
    """Seconds of this method's own decode time at the end of the round, prefill excluded."""
    wall_s: Seconds
    """Seconds since `run`, pauses included."""
    draft_s: float | None
    verify_s: float | None
    commit_s: float | None
    target_forwards: Count | None
    draft_forwards: Count | None
    knobs: Knobs | None = None
    tokens: list[Count]
    parents: list[int]
    logprobs: list[float]
    """By which trees grow; 0.0 for a root that is already committed. Greedy: log q(token | path to its parent) of the
    draft. Sampled: the log-probability that the target chooses the token, under the noise of its position."""
    draft_logprobs: list[float] = []
    """Sampled: log q(token | path to its parent) of the draft, before temperature and noise; else `logprobs` say it."""
    pieces: list[str]
    accepted: list[Count]
    """Accepted drafted nodes in path order."""
    committed: list[Count]
    """Their tokens and one of the target's own. Where the text ends, with end-of-text or at its length limit, tree and
    accepted nodes are cut like these (`decoder.text_end`); of hf, all tokens of a burst."""
    text: str
    """What the committed tokens add to the text; a character shows when its last byte is there."""
    shape: tuple[Count, Count, Count] | None = None
    """Drawn trees: (K, L1, L2) as drafted."""
    drawn: list[Count] = []
    """Drawn trees: how often each node was drawn; 1 for the root."""
    origins: list[Origin] = []
    """Trees of `auto` with lookups: what each node comes from; empty where rules have drafted all but the root, by the
    draft that the run names."""
    verification: Verification | None = None
    """Where tokens are sampled, and rounds are decoded from the host."""
    limited_by: Limit | None = None
    """Which rule refused children to the most probable leaf of the tree; None for a method without a tree."""
    stalled_s: Seconds | None = None
    """Seconds that the round lost, where these were many, since threads waited for a processor or the process was
    stopped."""

    def __post_init__(self) -> None:
        nodes = len(self.tokens)
        if nodes == 0 or not nodes == len(self.parents) == len(self.logprobs) == len(self.pieces):
            raise ValueError("tokens, parents, logprobs and pieces must have one entry a node, the root included")
        if self.draft_logprobs and len(self.draft_logprobs) != nodes:
            raise ValueError("draft_logprobs must have one entry a node, the root included")
        if self.origins and len(self.origins) != nodes:
            raise ValueError("origins must have one entry a node, the root included")
        if self.parents[0] != -1 or any(not 0 <= p < i for i, p in enumerate(self.parents[1:], 1)):
            raise ValueError("parents must be -1 for the root and an earlier node for every other")
        if any(not 0 <= node < nodes for node in self.accepted):
            raise ValueError("accepted names a node that is not in the tree")


class Knob(Base, tag="knob", omit_defaults=True, frozen=True, kw_only=True):
    """A knob was turned; `round` is the first that is decided under the new value. History on is 1, off is 0."""

    method: str
    round: Count
    name: KnobName
    old: float
    new: float
    source: Literal["user", "history"]
    turn: Count = 0
    """Which of the user's turns in this run it is, from 1: the same in all methods that obey it. 0 of history's, and in
    older recordings."""


class End(Base, tag="end", frozen=True, kw_only=True):
    """A method is done with the prompt."""

    method: str
    reason: Literal["length", "eos", "stopped", "error"]
    error: str | None = None
    peak_bytes: int | None = None


class Figures(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All figures of one method in one run; `decoder.analysis.metrics` defines each. None: cannot be known."""

    rounds: int = 0
    drafted: int | None = 0
    accepted: int | None = 0
    committed: int = 0
    target_forwards: int | None = 0
    draft_forwards: int | None = 0
    tokens_per_round: float | None = None
    path_length: float | None = None
    acceptance_rate: float | None = None
    depth_acceptance: float | None = None
    decode_s: float = 0.0
    tokens_per_second: float | None = None
    prefill_s: float | None = None
    ttft_s: float | None = None
    tpot_s: float | None = None
    draft_s: float | None = 0.0
    verify_s: float | None = 0.0
    commit_s: float | None = 0.0
    host_s: float | None = 0.0
    speedup: float | None = None
    stalled_rounds: int = 0
    left_out_rounds: int = 0
    left_out_s: float = 0.0
    identical_to_ar: bool | None = None
    first_difference: int | None = None
    near_tie: bool | None = None
    first_difference_gap: float | None = None
    peak_bytes: int | None = None
    distinct_8grams: float | None = None


class Summary(Base, tag="summary", omit_defaults=True, frozen=True, kw_only=True):
    """The prompt is done; all figures of all methods."""

    methods: dict[str, Figures]
    peak_bytes_by_rank: list[Count] = []
    """Most memory in use so far, where several processes run the target: of each."""


Event: TypeAlias = Run | Start | Round | Knob | End | Summary

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Event)


class _Head(msgspec.Struct):
    type: str | None = None
    schema: int = SCHEMA


_head_decoder = msgspec.json.Decoder(_Head)
_STEERING = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
"""Control characters that JSON leaves as they are, and that a terminal would obey."""


def encode(event: Base) -> bytes:
    """One line of JSON, newline included, that is safe to print."""
    line = _encoder.encode(event).decode()
    return _STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", line).encode() + b"\n"


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
        raise RecordingError(f"line {number}: {error}; is this a recording made with --record?") from None
    return event


def json_schema() -> dict[str, Any]:
    """JSON Schema of one line."""
    return msgspec.json.schema(Event)


_WITH_AUTO = 2


class Upgrade:
    """Turns the events of one recording, in their order, into events of today's schema.

    Schema 1 had no method `auto`: there DynaTree's `n_max` of 0 stood for as many nodes as pay. Such a run is told as
    one of `auto`. What an earlier schema did not record stays unknown.
    """

    def __init__(self) -> None:
        self._names: Mapping[str, str] = {}
        """Today's name of a method, where the present run calls it otherwise."""

    def event(self, event: Event) -> Event:
        """The event as it would be recorded today."""
        if isinstance(event, Run):
            return self._run(event)
        if isinstance(event, Summary):
            return msgspec.structs.replace(
                event, methods={self._name(name): figures for name, figures in event.methods.items()}
            )
        name = self._name(event.method)
        return event if name == event.method else msgspec.structs.replace(event, method=name)

    def _run(self, run: Run) -> Run:
        self._names = {}
        if run.schema >= SCHEMA:
            return run
        if run.schema < _WITH_AUTO and _is_automatic(run.methods.get("dynatree", {})) and "auto" not in run.methods:
            self._names = {"dynatree": "auto"}
        methods = {self._name(name): _parameters(self._name(name), given) for name, given in run.methods.items()}
        return msgspec.structs.replace(run, schema=SCHEMA, methods=methods)

    def _name(self, method: str) -> str:
        return self._names.get(method, method)


def _is_automatic(parameters: Mapping[str, Any]) -> bool:
    n_max = parameters.get("n_max")
    return n_max == 0 and not isinstance(n_max, bool)


def _parameters(method: str, given: dict[str, Any]) -> dict[str, Any]:
    """The parameters, of `auto` without `n_max` and `selection`."""
    return {name: value for name, value in given.items() if method != "auto" or name not in ("n_max", "selection")}
