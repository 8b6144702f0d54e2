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
HeadKind: TypeAlias = Literal["eagle3", "mtp", "dflash"]

Limit: TypeAlias = str
"""Name of a knob, or one of `OTHER_LIMITS`."""
LENGTH: Limit = "length"
"""Another level would exceed `max_new_tokens`."""
LOST: Limit = "draft's NaN"
"""The draft's logits after a node are not finite, so that it has no children."""
OTHER_LIMITS: frozenset[Limit] = frozenset(("cost", "context", LENGTH, LOST))

Origin: TypeAlias = Literal["root", "draft", "lookup"]
"""The text, the draft model, or suffix lookup in the text."""

Reason: TypeAlias = Literal["machine busy", "warming up", "too few rounds"]

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]
SomeSeconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]


TRANSLATED = "draft translated through text"
"""Part of `Run.path_reason` if the draft does not share the target's tokenizer."""
MOST_NAMED = 2
"""Of more devices only the first and the last are written, since torchrun numbers a machine's devices without gaps."""


class Base(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", kw_only=True):
    """Base class of all events, with their serialisation options."""


class Expected(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Estimated times of passes, from the models' sizes and the device's speed; the formulas are in
    `decoder.analysis.roofline`.
    """

    target_read_s: SomeSeconds
    """To read the weights, and the keys and values of the prompt."""
    target_row_s: Seconds = 0.0
    """Arithmetic for one row; 0 if the device's peak rate is unknown."""
    draft_pass_s: Seconds = 0.0
    """Of one row; 0 if no model drafts, or if its size is unknown."""


class Run(Base, tag="run", frozen=True, kw_only=True):
    """The start of a run, in which all methods of the race continue the same prompt."""

    schema: int = SCHEMA
    version: str
    started_at: str
    """UTC, ISO 8601."""
    target: str
    draft: str
    draft_head: HeadKind | msgspec.UnsetType = msgspec.UNSET
    """Absent if a whole model or suffix lookup drafts, and in older recordings."""
    device: str
    dtype: str
    draft_dtype: str = ""
    """Empty in older recordings: the target's."""
    exact: bool = False
    """Whether a token's logits are bit-identical in all methods except `hf`."""
    path: str = ""
    """As in `decoder.run.decoding_path`; empty in older recordings."""
    path_reason: str = ""
    """Why no faster path was possible; for the fastest, how each model's passes are computed."""
    ranks: list[str] = []
    """Device of each tensor-parallel process of the target, if there are several."""
    seed: int
    temperature: float = 0.0
    """Zero is greedy."""
    top_k: Count = 0
    """Zero stands for all tokens."""
    top_p: float = 1.0
    verifier: str = "coupled"
    drafting: str = "tree"
    """See `decoder.verify.names.Drafting`."""
    prompt: str
    category: str | msgspec.UnsetType = msgspec.UNSET
    """Of the prompt in its file."""
    prompt_tokens: list[Count]
    repeated_start: str | msgspec.UnsetType = msgspec.UNSET
    """Special tokens, usually BOS, that the prompt itself begins with and that were therefore not added again."""
    prompt_number: Count = 0
    """In its session, from 1; 0 if unknown."""
    prompt_count: Count = 0
    max_new_tokens: Count
    methods: dict[str, dict[str, Any]]
    """All parameters of each method, in the order of the race."""
    expected: Expected | msgspec.UnsetType = msgspec.UNSET
    """Absent if unknown, and in runs without a screen."""

    @property
    def start_words(self) -> str:
        """About special tokens that were not added to the prompt; empty if there are none."""
        start = self.repeated_start
        return f"the prompt itself begins with {start}, which is read once" if start else ""

    @property
    def place(self) -> str:
        return place(self.device, self.ranks)

    @property
    def translated(self) -> bool:
        return TRANSLATED in self.path_reason

    @property
    def arithmetic(self) -> str:
        """For example: float32 exact, draft bfloat16."""
        return arithmetic(self.dtype, self.draft_dtype, exact=self.exact)


def place(device: str, ranks: Sequence[str]) -> str:
    """For a tensor-parallel target, the number of its processes and their devices."""
    if not ranks:
        return device
    devices = list(dict.fromkeys(ranks))
    named = devices if len(devices) <= MOST_NAMED else [f"{devices[0]} to {devices[-1]}"]
    return f"{len(ranks)} processes on {', '.join(named)}"


def arithmetic(dtype: str, draft_dtype: str, *, exact: bool = False) -> str:
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
    """With repeated ones."""
    accepted: bool
    l1: float
    """Between the target's and the draft's distribution after the node, in [0, 2]."""
    acceptance: float | None
    """Of one of `count` sampled tokens, over all possible samples; None for verifiers of whole paths."""
    bound: float
    """The bound alpha* of every lossless verifier."""


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
    """Sum of [y is the most probable token] - max p."""
    top1_variance: float
    """Sum of max p (1 - max p)."""
    predicted_tokens: float | None = None
    """Sampled trees: given the tree; None if an end-of-text token cut the round."""
    reach: list[float] = []
    """Sampled trees: acceptance probability of each node, given the tree."""
    path: list[Draws] = []
    """Sampled trees: the root and each accepted node after which tokens were sampled."""


class Energy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of a stretch of rounds in which one method alone decoded."""

    joules: Annotated[float, msgspec.Meta(ge=0)]
    """Of all GPUs of the run, by their own counters, other programs' work included."""
    tokens: Count
    """Committed meanwhile."""


class Round(Base, tag="round", omit_defaults=True, frozen=True, kw_only=True):
    """One round of a method: a draft tree, its verification by the target, and the committed tokens.

    Nodes are numbered level by level, and within a level in the order of their parents. Among siblings, nodes from the
    draft come first, by descending draft probability, and nodes from lookup follow. Node 0 is the root. A method that
    drafts no tree reports only the root.
    """

    method: str
    round: Count
    """In its method, from 0."""
    position: Count
    """Tokens that the method had generated before."""
    t: Seconds
    """Decode time of this method at the end of the round, without prefill."""
    wall_s: Seconds
    """Since the event `run`, pauses included."""
    draft_s: float | None
    verify_s: float | None
    commit_s: float | None
    target_forwards: Count | None
    draft_forwards: Count | None
    knobs: Knobs | None = None
    tokens: list[Count]
    parents: list[int]
    logprobs: list[float]
    """Of each node, as used by the growth rule; 0.0 for a committed root. Greedy: the draft's log q(token | path),
    sharpened by the exponent `sharpness` of adaptive trees. Sampling: the estimated log-probability that the target
    chooses the token, given the position's noise. The method `auto` uses its learnt acceptance probability in both.
    """
    draft_logprobs: list[float] = []
    """The draft's log q(token | path) as it is; empty if equal to `logprobs`."""
    pieces: list[str]
    accepted: list[Count]
    """In path order."""
    committed: list[Count]
    """The tokens of the accepted nodes, then the bonus token; cut at the end of the text, with the tree
    (`decoder.run.text_end`). For method `hf`, all tokens that transformers delivered at once.
    """
    text: str
    """A character of several tokens appears in the round that completes it."""
    shape: tuple[Count, Count, Count] | None = None
    """Sampled trees: K rollouts of L2 tokens, after a path of L1 tokens."""
    drawn: list[Count] = []
    """Sampled trees: how often each node was sampled; 1 for the root."""
    origins: list[Origin] = []
    """In trees of `auto` with suffix lookup."""
    verification: Verification | None = None
    """Of a sampled round that the host drives."""
    limited_by: Limit | None = None
    """The limit of the tree's most probable leaf."""
    stalled_s: Seconds | None = None
    """While threads waited for a processor or the process was stopped; None if negligible."""
    waited_s: Seconds | None = None
    """Of threads for a processor, summed over threads, with earlier rounds that were too short for a reading; None
    without a wait or a reading.
    """
    energy: Energy | None = None
    """Of the rounds that this one ends; None where no stretch ends, and without a counter."""

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
    """Of the user's change, from 1 in each run, the same in all methods; 0 for changes by the history rule, and in
    older recordings.
    """


class End(Base, tag="end", frozen=True, kw_only=True):
    """A method has finished its text."""

    method: str
    reason: Literal["length", "eos", "stopped", "error"]
    error: str | None = None
    peak_bytes: int | None = None


class Figures(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All figures of one method in one run, as defined in `decoder.analysis.metrics`; an unknown figure is None."""

    # Each type is followed by the figure's label, its formula in words, and its names in other engines.

    rounds: Annotated[int, "rounds", "target verifications", "num_drafts (vLLM)"] = 0
    drafted: Annotated[
        int | None, "drafted", "drafted nodes that were verified", "num_draft_tokens (vLLM), draft_n (llama.cpp)"
    ] = 0
    accepted: Annotated[
        int | None,
        "accepted",
        "drafted nodes that were accepted",
        "num_accepted_tokens (vLLM), draft_n_accepted (llama.cpp)",
    ] = 0
    committed: Annotated[int, "committed", "tokens that became text"] = 0
    target_forwards: Annotated[int | None, "target forwards", "forward passes of the target, prompt excluded"] = 0
    draft_forwards: Annotated[int | None, "draft forwards", "forward passes of the draft, prompt excluded"] = 0
    tokens_per_round: Annotated[
        float | None,
        "L-bar",
        "committed / rounds",
        "block efficiency, mean acceptance length (vLLM), spec accept length (SGLang), MAT (Spec-Bench)",
    ] = None
    path_length: Annotated[float | None, "l-bar", "accepted / rounds, without the bonus token"] = None
    acceptance_rate: Annotated[
        float | None, "acceptance rate", "accepted / drafted", "draft acceptance rate (vLLM)"
    ] = None
    depth_acceptance: Annotated[
        float | None, "depth acceptance", "accepted depth / depth of the tree, averaged over rounds"
    ] = None
    decode_s: Annotated[float, "decode s", "time this method spent decoding, prompt excluded"] = 0.0
    tokens_per_second: Annotated[float | None, "tokens/s", "committed / decode_s, stalled rounds left out"] = None
    prefill_s: Annotated[float | None, "prefill s", "time to read the prompt"] = None
    ttft_s: Annotated[float | None, "TTFT s", "prefill_s + first round", "time to first token"] = None
    tpot_s: Annotated[
        float | None, "TPOT s", "decode_s / committed, stalled rounds left out", "time per output token"
    ] = None
    draft_s: Annotated[float | None, "draft s", "time spent drafting"] = 0.0
    verify_s: Annotated[float | None, "verify s", "time spent in passes of the target"] = 0.0
    commit_s: Annotated[float | None, "commit s", "time spent accepting nodes and moving keys and values"] = 0.0
    host_s: Annotated[float | None, "host s", "decode_s - draft_s - verify_s - commit_s"] = 0.0
    speedup: Annotated[
        float | None,
        "speed-up",
        "tokens_per_second / tokens_per_second of ar while both decode, stalled rounds left out",
    ] = None
    speedup_low: Annotated[
        float | None,
        "speed-up, low",
        "lower end of the 95 % interval of the speed-up, from the turns of the run",
    ] = None
    speedup_high: Annotated[float | None, "speed-up, high", "upper end of the 95 % interval of the speed-up"] = None
    speedup_reason: Annotated[
        Reason | None,
        "no speed-up",
        "machine busy: threads waited for a processor in more than a tenth of the time, too many rounds stalled to "
        "leave them out, or times of equal passes differ much; warming up: fewer than 30 tokens; too few rounds: the "
        "interval is still wide before 20 turns",
    ] = None
    stalled_rounds: Annotated[
        int,
        "stalled rounds",
        "rounds that lost at least 30 ms, and at least a third of their time, while waiting for a processor or stopped",
    ] = 0
    left_out_rounds: Annotated[
        int,
        "left out",
        "stalled rounds excluded from rates; if many rounds stalled, only those that lost the most time are excluded",
    ] = 0
    left_out_s: Annotated[float, "left out s", "time of the rounds left out"] = 0.0
    identical_to_ar: Annotated[
        bool | None, "same as ar", "whether tokens equal those of ar up to the end of the shorter text"
    ] = None
    first_difference: Annotated[int | None, "first difference", "index of the first token that differs from ar"] = None
    near_tie: Annotated[
        bool | None,
        "near tie",
        "whether the float32 logits of the two tokens at the first difference differ by at most twice the logit error",
    ] = None
    first_difference_gap: Annotated[
        float | None,
        "logit gap",
        "float32 logits of the two tokens at the first difference: the higher minus the lower",
    ] = None
    peak_bytes: Annotated[int | None, "peak bytes", "largest memory in use"] = None
    distinct_8grams: Annotated[
        float | None,
        "distinct 8-grams",
        "share of the text's 8-grams that are distinct; if a text repeats itself, this share is low and L-bar is high",
    ] = None
    joules_per_token: Annotated[
        float | None,
        "J/token",
        "energy of the run's GPUs by NVML's counters / committed, over stretches of a second or more in which this "
        "method alone decoded",
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION / 1000 / vllm:generation_tokens_total (Prometheus)",
    ] = None


class Summary(Base, tag="summary", omit_defaults=True, frozen=True, kw_only=True):
    """All methods have finished their texts. The event contains the figures of each method."""

    methods: dict[str, Figures]
    peak_bytes_by_rank: list[Count] = []
    """So far, of each tensor-parallel process of the target, if there are several."""


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
    """One line, safe to print. Raises ValueError if a number is NaN or infinite: what is unknown must be None."""
    if not _is_finite(event):
        raise ValueError(f"an event has a number that is not finite: {event}")
    line = _encoder.encode(event).decode()
    return _STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", line).encode() + b"\n"


def _is_finite(value: object) -> bool:
    """A list has elements of one type."""
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
    """Lines count from 1. Raises RecordingError, with the number, if the line is not an event of this schema."""
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
    return msgspec.json.schema(Event)


_WITH_AUTO = 2


class Upgrade:
    """Converts the events of one recording to the current schema; the events must be given in order.

    Schema 1 had no method `auto`: DynaTree with `n_max` 0 chose the number of nodes by cost. So a run of DynaTree with
    `n_max` 0 becomes a run of `auto`. Fields that an earlier schema did not have get their default values.
    """

    def __init__(self) -> None:
        self._names: Mapping[str, str] = {}
        """Current names of renamed methods."""

    def event(self, event: Event) -> Event:
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
    """In the current schema, `auto` has no `n_max` and no `selection`."""
    return {name: value for name, value in given.items() if method != "auto" or name not in ("n_max", "selection")}
