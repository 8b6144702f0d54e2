"""Events of decoding, each written as one line of JSON. They are the interface between engine, screen, recordings and
tests.

After a crash, a recording can be read up to its last complete line. This module knows neither models nor screens.
Fields `*_s` are in seconds, fields `*_bytes` in bytes.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from decoder.errors import RecordingError, in_one_line, shortened
from decoder.knobs import KnobName

SCHEMA = 3

Limit: TypeAlias = str
"""Name of what limited a tree's growth: the name of a knob, or one of `OTHER_LIMITS`."""
LENGTH: Limit = "length"
"""The limit `max_new_tokens`: another level of the tree would exceed the text's maximum length."""
LOST: Limit = "draft's NaN"
"""The draft's logits after a node are NaN or infinite, so the draft could propose no child of the node."""
OTHER_LIMITS: frozenset[Limit] = frozenset(("cost", "context", LENGTH, LOST))
"""Limits other than knobs: the cost of further nodes, the models' context length, the text's maximum length, and logits
of the draft that are not finite.
"""

Origin: TypeAlias = Literal["root", "draft", "lookup"]
"""Origin of a node: the text (root), the draft model, or suffix lookup in the text."""

Reason: TypeAlias = Literal["machine busy", "warming up", "too few rounds"]
"""Why there is no speed-up."""

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]
SomeSeconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]


TRANSLATED = "draft translated through text"
"""Part of `Run.path_reason` in runs whose draft does not share the target's tokenizer."""
MOST_NAMED = 2
"""Largest number of devices that are listed one by one. If there are more, only the first and the last device are
written, as a range, since torchrun numbers a machine's devices without gaps.
"""


class Base(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", kw_only=True):
    """Base class of all events, with their serialisation options."""


class Expected(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Lower bounds of the times of passes, from the models' sizes and the device's speed; the formulas are in
    `decoder.analysis.roofline`.
    """

    target_read_s: SomeSeconds
    """Seconds that a pass of the target needs to read the weights, and the keys and values of the prompt."""
    target_row_s: Seconds = 0.0
    """Seconds that the target's arithmetic for one row needs; 0 if the device's peak rate is unknown."""
    draft_pass_s: Seconds = 0.0
    """Seconds of a draft pass of one row; 0 if no model drafts, or if its size is unknown."""


class Run(Base, tag="run", frozen=True, kw_only=True):
    """The start of a run, in which all methods of the race continue the same prompt."""

    schema: int = SCHEMA
    version: str
    started_at: str
    """Start time, UTC, ISO 8601."""
    target: str
    draft: str
    device: str
    dtype: str
    """Dtype of the target."""
    draft_dtype: str = ""
    """Dtype of the draft; empty in older recordings, in which the draft has the target's dtype."""
    exact: bool = False
    """Whether decoding is batch-invariant, so that a token's logits are bit-identical in all methods except `hf`."""
    path: str = ""
    """Decoding path of rounds: cuda graphs, static module or host (see `decoder.run.decoding_path`); empty in older
    recordings.
    """
    path_reason: str = ""
    """Reason why no faster decoding path was possible. If `path` is the fastest path, this text describes instead how
    each model's forward passes are computed.
    """
    ranks: list[str] = []
    """Device of each tensor-parallel process of the target; empty if the target runs in a single process."""
    seed: int
    temperature: float = 0.0
    """Sampling temperature; 0 is greedy."""
    top_k: Count = 0
    """Number of most probable tokens from which a token is sampled; 0 stands for all tokens."""
    top_p: float = 1.0
    verifier: str = "coupled"
    """Name of the verifier, which decides which drafted tokens are accepted."""
    drafting: str = "tree"
    """How trees are drafted; see `decoder.verify.names.Drafting`."""
    prompt: str
    category: str | msgspec.UnsetType = msgspec.UNSET
    """Category of the prompt in its file; absent if it has none."""
    prompt_tokens: list[Count]
    repeated_start: str | msgspec.UnsetType = msgspec.UNSET
    """Special tokens, usually BOS, as text, that the prompt itself begins with and that were therefore not added again;
    absent if there are none.
    """
    prompt_number: Count = 0
    """Number of the prompt in its session, from 1; 0 if unknown."""
    prompt_count: Count = 0
    max_new_tokens: Count
    methods: dict[str, dict[str, Any]]
    """All parameters of each method; keys are the names of the methods, in the order of the race."""
    expected: Expected | msgspec.UnsetType = msgspec.UNSET
    """Lower bounds of the times of passes; absent if unknown, and in runs without a screen."""

    @property
    def start_words(self) -> str:
        """Sentence about special tokens that were not added to the prompt; empty if there are none."""
        start = self.repeated_start
        return f"the prompt itself begins with {start}, which is read once" if start else ""

    @property
    def place(self) -> str:
        """Device of the target in words; for a tensor-parallel target, the number of processes and their devices."""
        return place(self.device, self.ranks)

    @property
    def translated(self) -> bool:
        """Whether the draft's guesses are translated through text, since target and draft have different tokenizers."""
        return TRANSLATED in self.path_reason

    @property
    def arithmetic(self) -> str:
        """Dtype of the target, the word "exact" if decoding is batch-invariant, and the draft's dtype if it differs."""
        return arithmetic(self.dtype, self.draft_dtype, exact=self.exact)


def place(device: str, ranks: Sequence[str]) -> str:
    """Device of a target in words; for a tensor-parallel target, the number of its processes and their devices."""
    if not ranks:
        return device
    devices = list(dict.fromkeys(ranks))
    named = devices if len(devices) <= MOST_NAMED else [f"{devices[0]} to {devices[-1]}"]
    return f"{len(ranks)} processes on {', '.join(named)}"


def arithmetic(dtype: str, draft_dtype: str, *, exact: bool = False) -> str:
    """Dtypes of a pair in words, for example: float32 exact, draft bfloat16."""
    own = f", draft {draft_dtype}" if draft_dtype not in ("", dtype) else ""
    return f"{dtype}{' exact' * exact}{own}"


class Start(Base, tag="start", frozen=True, kw_only=True):
    """A method has prefilled the prompt."""

    method: str
    prefill_s: Seconds


class Knobs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Exact (not rounded) values of the adaptive knobs in a round."""

    tau_h: float
    tau_l: float
    d0: float


class Draws(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Statistics of the tokens sampled after one node that the verification reached."""

    count: Count
    """Number of sampled tokens, including repeated ones."""
    accepted: bool
    """Whether one of the sampled tokens was accepted, so that the accepted path continues."""
    l1: float
    """L1 distance between the target's and the draft's distribution after the node, in [0, 2]."""
    acceptance: float | None
    """Probability that the run's verifier accepts one of `count` sampled tokens, averaged over all possible samples;
    None for verifiers that accept or reject whole paths.
    """
    bound: float
    """alpha*: upper bound on the acceptance probability of every lossless verifier."""


class Verification(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Statistics of a sampled round, from the target's and draft's distributions; sums are over the round's committed
    tokens.

    In the formulas, y is a committed token, p is the target's distribution for y, and H(p) is the entropy of p. If
    decoding is lossless, `surprise` and `top1` have mean 0.
    """

    surprise: float
    """Sum of -ln p(y) - H(p), in nats."""
    surprise_variance: float
    """Sum of the variances of -ln p(y)."""
    top1: float
    """Sum of [y is the most probable token] - max p, where [...] is 1 if the statement is true, and 0 otherwise."""
    top1_variance: float
    """Sum of max p (1 - max p)."""
    predicted_tokens: float | None = None
    """Sampled trees: expected number of committed tokens, given the tree; None if an end-of-text token cut the round.
    """
    reach: list[float] = []
    """Sampled trees: acceptance probability of each node, given the tree; 1 for the root."""
    path: list[Draws] = []
    """Sampled trees: statistics for the root and each accepted node after which tokens were sampled, in path order."""


class Round(Base, tag="round", omit_defaults=True, frozen=True, kw_only=True):
    """One round of a method: a draft tree, its verification by the target, and the committed tokens.

    Nodes are numbered level by level, and within a level in the order of their parents. Among siblings, nodes from the
    draft come first, by descending draft probability, and nodes from lookup follow. Node 0 is the root. A method that
    drafts no tree reports only the root.
    """

    method: str
    round: Count
    """Number of the round in its method, from 0."""
    position: Count
    """Number of tokens that the method had generated before this round."""
    t: Seconds
    """Decode time of this method at the end of the round, in seconds, without prefill."""
    wall_s: Seconds
    """Seconds since the event `run`, pauses included."""
    draft_s: float | None
    verify_s: float | None
    commit_s: float | None
    target_forwards: Count | None
    draft_forwards: Count | None
    knobs: Knobs | None = None
    tokens: list[Count]
    parents: list[int]
    logprobs: list[float]
    """Log-probability of each node, as used by the growth rule; 0.0 for a root that is already committed. In greedy
    decoding it is the draft's log q(token | path to its parent), sharpened by the exponent `sharpness` of adaptive
    trees. In sampling it is the estimated log-probability that the target chooses the token, given the position's
    sampling noise. The method `auto` uses its learnt acceptance probability in both.
    """
    draft_logprobs: list[float] = []
    """The draft's log q(token | path to its parent), without exponent, temperature and noise; empty if `logprobs` are
    equal to it.
    """
    pieces: list[str]
    accepted: list[Count]
    """Accepted drafted nodes in path order."""
    committed: list[Count]
    """Committed tokens: the tokens of the accepted nodes, then the bonus token. If end-of-text or the length limit cuts
    the committed tokens, tree and accepted nodes are cut too (`decoder.run.text_end`). For method `hf`, all tokens that
    transformers delivered at once."""
    text: str
    """Text of the committed tokens; a character that consists of several tokens appears in the round that
    completes it.
    """
    shape: tuple[Count, Count, Count] | None = None
    """Sampled trees: shape (K, L1, L2) of the tree: K rollouts of L2 tokens, which begin after a path of L1 tokens."""
    drawn: list[Count] = []
    """Sampled trees: how many times each node was sampled; 1 for the root."""
    origins: list[Origin] = []
    """Origin of each node, in trees of method `auto` with suffix lookup; empty if the draft proposed all nodes except
    the root.
    """
    verification: Verification | None = None
    """Statistics of a sampled round that the host drives; None for other rounds."""
    limited_by: Limit | None = None
    """The limit that prevented children of the tree's most probable leaf; None for a method without a tree."""
    stalled_s: Seconds | None = None
    """Seconds lost while threads waited for a processor or the process was stopped; None if negligible."""
    waited_s: Seconds | None = None
    """Seconds that threads waited for a processor, summed over the threads, in this round and in rounds before it that
    were too short for a reading; None if there was no wait or no reading.
    """

    def __post_init__(self) -> None:
        nodes = len(self.tokens)
        if nodes == 0 or not nodes == len(self.parents) == len(self.logprobs) == len(self.pieces):
            raise ValueError("tokens, parents, logprobs and pieces must have one entry per node, the root included")
        if self.draft_logprobs and len(self.draft_logprobs) != nodes:
            raise ValueError("draft_logprobs must have one entry per node, the root included")
        if self.origins and len(self.origins) != nodes:
            raise ValueError("origins must have one entry per node, the root included")
        if self.parents[0] != -1 or any(not 0 <= p < i for i, p in enumerate(self.parents[1:], 1)):
            raise ValueError("parents must be -1 for the root and an earlier node for every other node")
        if any(not 0 <= node < nodes for node in self.accepted):
            raise ValueError("accepted has a node that is not in the tree")


class Knob(Base, tag="knob", omit_defaults=True, frozen=True, kw_only=True):
    """A knob's value has changed; `round` is the first round with the new value. The value of the knob `history` is 1
    if the history rule is on, and 0 if it is off.
    """

    method: str
    round: Count
    name: KnobName
    old: float
    new: float
    source: Literal["user", "history"]
    turn: Count = 0
    """Serial number of the user's knob change, counted from 1 in each run. If a change affects several methods, their
    events have the same number. The number is 0 for changes by the history rule, and for all changes in older
    recordings.
    """


class End(Base, tag="end", frozen=True, kw_only=True):
    """A method has finished its text."""

    method: str
    reason: Literal["length", "eos", "stopped", "error"]
    error: str | None = None
    peak_bytes: int | None = None


class Figures(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All figures of one method in one run, as defined in `decoder.analysis.metrics`; an unknown figure is None."""

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
    speedup_low: float | None = None
    speedup_high: float | None = None
    speedup_reason: Reason | None = None
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
    """All methods have finished their texts. The event contains the figures of each method."""

    methods: dict[str, Figures]
    peak_bytes_by_rank: list[Count] = []
    """Peak memory so far of each tensor-parallel process of the target, in bytes; empty if the target runs in a single
    process.
    """


Event: TypeAlias = Run | Start | Round | Knob | End | Summary

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Event)


class _Head(msgspec.Struct):
    type: str | None = None
    schema: int = SCHEMA


_head_decoder = msgspec.json.Decoder(_Head)
_STEERING = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
"""Control characters that JSON does not escape, although they would change what a terminal shows."""


def encode(event: Base) -> bytes:
    """Encodes an event as one line of JSON that is safe to print; the line ends with a newline.

    Raises:
        ValueError: A number is NaN or infinite, which JSON cannot say: what cannot be known must be None.
    """
    if not _is_finite(event):
        raise ValueError(f"an event has a number that is not finite: {event}")
    line = _encoder.encode(event).decode()
    return _STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", line).encode() + b"\n"


def _is_finite(value: object) -> bool:
    """Whether an event or a part of it has neither NaN nor infinity; a list has elements of one type."""
    match value:
        case float():
            return math.isfinite(value)
        case dict():
            return all(map(_is_finite, value.values()))
        case list() if value and isinstance(value[0], float):
            return all(map(math.isfinite, value))
        case list() if value and isinstance(value[0], msgspec.Struct):
            return all(map(_is_finite, value))
        case msgspec.Struct():
            return all(_is_finite(getattr(value, name)) for name in value.__struct_fields__)
        case _:
            return True


def decode_line(line: bytes, number: int) -> Event:
    """Decodes the event on line `number`, counted from 1.

    Raises:
        RecordingError: The line is not an event of this schema; the message names the line number.
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
            f"line {number}: {in_one_line(error)}; give a recording that --record has written"
        ) from None
    return event


def json_schema() -> dict[str, Any]:
    """JSON Schema of a line of a recording."""
    return msgspec.json.schema(Event)


_WITH_AUTO = 2


class Upgrade:
    """Converts the events of one recording to the current schema; the events must be given in order.

    Schema 1 had no method `auto`: DynaTree with `n_max` 0 chose the number of nodes by cost. So a run of DynaTree with
    `n_max` 0 becomes a run of `auto`. Fields that an earlier schema did not have get their default values.
    """

    def __init__(self) -> None:
        self._names: Mapping[str, str] = {}
        """Current name of each renamed method; the key is the method's name in the recording."""

    def event(self, event: Event) -> Event:
        """Converts one event to the current schema."""
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
    """Parameters of a method in the current schema, in which `auto` has no `n_max` and no `selection`."""
    return {name: value for name, value in given.items() if method != "auto" or name not in ("n_max", "selection")}
