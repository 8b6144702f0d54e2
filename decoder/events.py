"""Events of decoding, each written as one line of JSON. They are the interface between engine, screen, recordings and
tests.

After a crash, a recording can be read up to its last complete line. This module does not depend on models or screens.
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
"""What limited a tree: the name of a knob, or one of `OTHER_LIMITS`."""
LENGTH: Limit = "length"
"""Limit of a tree in which one more level would exceed `max_new_tokens`."""
LOST: Limit = "draft's NaN"
"""Limit of a tree in which a node has no children because the draft's logits after it are not finite."""
OTHER_LIMITS: frozenset[Limit] = frozenset(("cost", "context", LENGTH, LOST))

Origin: TypeAlias = Literal["root", "draft", "lookup"]
"""Source of a node: the text (for the root), the draft model, or suffix lookup in the text."""

Reason: TypeAlias = Literal["machine busy", "warming up", "too few rounds"]

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]
SomeSeconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]


TRANSLATED = "draft translated through text"
"""Part of `Run.path_reason` if the draft has its own tokenizer."""
MOST_NAMED = 2
"""Largest number of devices that are all named; of more devices, only the first and the last are named, since torchrun
numbers devices without gaps.
"""


class Base(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", kw_only=True):
    """Base class of all events, with their serialisation options."""


class Expected(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Estimated times of passes, from the models' sizes and the device's speed; the formulas are in
    `decoder.analysis.roofline`.
    """

    target_read_s: SomeSeconds
    """Time in which a target pass reads the weights, and the prompt's keys and values, from memory."""
    target_row_s: Seconds = 0.0
    """Time of the arithmetic of one row in a target pass; 0 if the device's peak rate is unknown."""
    draft_pass_s: Seconds = 0.0
    """Time of a draft pass of one row; 0 if no model drafts, or if the draft's size is unknown."""


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
    """Empty in older recordings, in which the draft has the target's dtype."""
    exact: bool = False
    """Whether a token's logits are bit-identical in all methods except `hf`."""
    path: str = ""
    """Name of the decoding path (`decoder.run.decoding_path`); empty in older recordings."""
    path_reason: str = ""
    """Why no faster path was possible; for the fastest path, how each model's passes are computed."""
    ranks: list[str] = []
    """Device of each tensor-parallel process of the target; empty if one process runs the whole target."""
    seed: int
    temperature: float = 0.0
    """0 means greedy decoding."""
    top_k: Count = 0
    """0 means all tokens."""
    top_p: float = 1.0
    verifier: str = "coupled"
    drafting: str = "tree"
    """See `decoder.verify.names.Drafting`."""
    prompt: str
    category: str | msgspec.UnsetType = msgspec.UNSET
    """Category of the prompt in its file."""
    prompt_tokens: list[Count]
    repeated_start: str | msgspec.UnsetType = msgspec.UNSET
    """Special tokens, usually BOS, that the prompt itself begins with and that were therefore not added again."""
    prompt_number: Count = 0
    """Number of the prompt in its session, from 1; 0 if unknown."""
    prompt_count: Count = 0
    max_new_tokens: Count
    methods: dict[str, dict[str, Any]]
    """All parameters of each method, in the order of the race."""
    expected: Expected | msgspec.UnsetType = msgspec.UNSET
    """Absent if unknown, and in runs without a screen."""

    @property
    def start_words(self) -> str:
        """Message about special tokens that were not added, since the prompt has them; empty without such tokens."""
        start = self.repeated_start
        return f"the prompt already begins with {start}, which is not added again" if start else ""

    @property
    def place(self) -> str:
        return place(self.device, self.ranks)

    @property
    def translated(self) -> bool:
        return TRANSLATED in self.path_reason

    @property
    def arithmetic(self) -> str:
        """Precision of the models in words, for example: float32 exact, draft bfloat16."""
        return arithmetic(self.dtype, self.draft_dtype, exact=self.exact)


def place(device: str, ranks: Sequence[str]) -> str:
    """The device in words; for a tensor-parallel target, the number of its processes and their devices."""
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
    """Unrounded values of the adaptive knobs in a round."""

    tau_h: float
    tau_l: float
    d0: float


class Draws(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Statistics of the tokens sampled after one node that the verification reached."""

    count: Count
    """Number of sampled tokens, duplicates included."""
    accepted: bool
    l1: float
    """L1 distance between the target's and the draft's distribution after the node, in [0, 2]."""
    acceptance: float | None
    """Expected probability that one of `count` random samples is accepted; None for verifiers of whole paths."""
    bound: float
    """Highest `acceptance` that a lossless verifier could have here (alpha* of Thomas et al. 2026)."""


class Verification(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Statistics of a round with sampled tokens, from the target's and draft's distributions; sums are over the round's
    committed tokens.

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
    """Sampled trees: expected committed tokens, given the tree; None if an end-of-text token cut the round."""
    reach: list[float] = []
    """Sampled trees: acceptance probability of each node, given the tree."""
    path: list[Draws] = []
    """Sampled trees: the root and each accepted node after which tokens were sampled."""


class Energy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Energy of consecutive rounds of one method in which no other method decoded."""

    joules: Annotated[float, msgspec.Meta(ge=0)]
    """Energy of all GPUs of the run, from the GPUs' own counters, which include the work of other programs."""
    tokens: Count
    """Tokens committed in these rounds."""


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
    """Number of tokens that the method generated before this round."""
    t: Seconds
    """Decode time of this method at the end of the round, without prefill."""
    wall_s: Seconds
    """Time since the event `run`, pauses included."""
    draft_s: float | None
    verify_s: float | None
    commit_s: float | None
    target_forwards: Count | None
    draft_forwards: Count | None
    knobs: Knobs | None = None
    tokens: list[Count]
    parents: list[int]
    logprobs: list[float]
    """Log-probability of each node, as the growth rule uses it; 0.0 for a root that is already committed. Greedy
    decoding: the draft's log q(token | path), sharpened by the exponent `sharpness` of adaptive trees. Sampling: the
    estimated log-probability that the target chooses the token, given the position's noise. In both cases, the method
    `auto` uses a probability that it has learnt.
    """
    draft_logprobs: list[float] = []
    """The draft's unmodified log q(token | path); empty if equal to `logprobs`."""
    pieces: list[str]
    accepted: list[Count]
    """Accepted nodes in path order."""
    committed: list[Count]
    """Tokens of the accepted nodes, then the bonus token. At the end of the text, these tokens and the tree are cut
    (`decoder.run.text_end`). For the method `hf`, all tokens that transformers delivered at once.
    """
    text: str
    """New text of this round; a character of several tokens appears in the round that completes it."""
    shape: tuple[Count, Count, Count] | None = None
    """Sampled trees: (K, L1, L2), for K rollouts of L2 tokens after a path of L1 tokens."""
    drawn: list[Count] = []
    """Sampled trees: how often each node was sampled; 1 for the root."""
    origins: list[Origin] = []
    """Origin of each node, in trees of `auto` with suffix lookup; otherwise empty."""
    verification: Verification | None = None
    """Statistics of a round with sampled tokens that runs on the host; None for other rounds."""
    limited_by: Limit | None = None
    """The limit that kept the tree's most probable leaf from having children."""
    stalled_s: Seconds | None = None
    """Time lost while threads waited for a processor or the process was stopped; None if negligible."""
    waited_s: Seconds | None = None
    """Time for which threads waited for a processor, summed over threads; includes earlier rounds that were too short
    for a reading. None without a wait or a reading.
    """
    energy: Energy | None = None
    """Energy of the rounds up to and including this one; None if no measurement ends here, or without a counter."""

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
    """Serial number of the user's change, from 1 in each run, the same in all methods; 0 for a change by the history
    rule, and in older recordings.
    """


class End(Base, tag="end", frozen=True, kw_only=True):
    """A method has finished its text, was stopped, or has failed."""

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
    """Peak memory so far of each tensor-parallel process of the target; empty if there is only one."""


Event: TypeAlias = Run | Start | Round | Knob | End | Summary

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Event)


class _Head(msgspec.Struct):
    type: str | None = None
    schema: int = SCHEMA


_head_decoder = msgspec.json.Decoder(_Head)
_STEERING = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
"""Control characters that the JSON encoder does not escape, although a terminal would execute them."""


def encode(event: Base) -> bytes:
    """The event as one line of JSON, safe to print. Raises ValueError for NaN and infinity, which must be None."""
    if not _is_finite(event):
        raise ValueError(f"an event has a number that is not finite: {event}")
    line = _encoder.encode(event).decode()
    return _STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", line).encode() + b"\n"


def _is_finite(value: object) -> bool:
    """Whether all numbers in the value are finite; assumes that the elements of a list have one type, or are None."""
    match value:
        case float():
            return math.isfinite(value)
        case dict():
            return all(map(_is_finite, value.values()))
        case list() if value and isinstance(value[0], float | None):
            return all(number is None or math.isfinite(number) for number in value)
        case list() if value and isinstance(value[0], msgspec.Struct):
            return all(map(_is_finite, value))
        case msgspec.Struct():
            return all(_is_finite(getattr(value, name)) for name in value.__struct_fields__)
        case _:
            return True


def decode_line(line: bytes, number: int) -> Event:
    """Decodes line `number`, from 1. Raises RecordingError if the line is not an event of this or an older schema."""
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
    """Parameters in the current schema, in which `auto` has no `n_max` and no `selection`."""
    return {name: value for name, value in given.items() if method != "auto" or name not in ("n_max", "selection")}
