"""Request of a comparison (prompts, sampling settings, verifiers and tree shapes), and its log: a header with times of
forward passes, then records of the results on texts.
"""

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec

from decoder.draft.delayed_shape import MOST, DelayedTree, distinct_shapes
from decoder.draft.tree_size.cost_model import Costs
from decoder.errors import ConfigError, PromptError, quoted, require
from decoder.prompt import AnyPrompt
from decoder.sampling.settings import Sampling
from decoder.verify.names import VERIFIER_NAMES, Drafting
from dynatui.lab.bench import PairRequest
from dynatui.lab.bench.data_sets import FILE, first_turns
from dynatui.lab.bench.record_log import LogFormat, LogHeader, RecordLog

PATH_VERIFIERS = ("naive", "block")
"""Verifiers of a single drafted path; the benchmark runs them on chains only."""
BY_ROLLOUTS = "traversal"
"""Verifier for which the paper's tables have a row for each number of rollouts."""
HIGHEST_K, HIGHEST_LENGTH = 8, 16
"""Upper limits of `k` and `length`; the time of a measurement grows with the number of shapes."""


class TextKey(NamedTuple):
    """Key of a text; `sampling` is the number of a sampling setting, `prompt` the number of a prompt in the task."""

    sampling: int
    task: str
    prompt: int


class Contest(msgspec.Struct, frozen=True):
    """Verifier with one kind of drafting; comparisons use the best tree shape that this drafting allows."""

    verifier: str
    drafting: str
    """Name of the kind of drafting; for coupled trees and plain decoding, name of the method."""
    k: int | None = None
    """Required number of rollouts; None if any number is allowed."""


class SamplingRequest(PairRequest, frozen=True, kw_only=True):
    """Everything that determines the results; a log can only be resumed with an equal request."""

    samplings: tuple[Sampling, ...]
    tasks: dict[str, tuple[AnyPrompt, ...]]
    verifiers: tuple[str, ...]
    k: int
    """Maximum number of rollouts in a shape."""
    length: int
    """Maximum number of tokens in the common path before the rollouts, and also in each rollout."""
    max_new_tokens: int
    roots_every: int
    """Distance in tokens between successive roots, the text positions at which closed forms are evaluated."""
    decoded: int
    """Number of prompts of each task that are also decoded, to measure tokens per second."""
    repeats: int
    """Number of times that each text is decoded, with different seeds."""
    selectors: tuple[str, ...] = ()
    """Selectors of tree shapes: for each selector, the verifier it was trained for and the SHA-256 of its file."""

    def __post_init__(self) -> None:
        unknown = [name for name in self.verifiers if name not in VERIFIER_NAMES]
        require(
            bool(self.verifiers) and not unknown,
            f"--verifiers names {', '.join(unknown) or 'none'}; choose from {', '.join(VERIFIER_NAMES)}",
        )
        require(1 <= self.k <= HIGHEST_K, f"--k is {self.k}; give 1 to {HIGHEST_K}")
        require(1 <= self.length <= HIGHEST_LENGTH, f"--length is {self.length}; give 1 to {HIGHEST_LENGTH}")
        for name, least in (("max_new_tokens", 1), ("roots_every", 1), ("decoded", 0)):
            value = getattr(self, name)
            require(value >= least, f"--{name.replace('_', '-')} is {value}; give {least} or more")
        greedy = any(sampling.greedy for sampling in self.samplings)
        require(not greedy, "at temperature 0, all verifiers decode greedily and so do not differ; give values above 0")
        require(bool(self.samplings), "no temperature was given; give --temperatures or --top-p")

    def shapes(self, verifier: str) -> list[DelayedTree]:
        """All tree shapes on which a verifier is evaluated, in a fixed order."""
        one_path = verifier in PATH_VERIFIERS
        return [shape for shape in distinct_shapes(self.k, self.length, self.length) if shape.k == 1 or not one_path]

    def contests(self) -> list[Contest]:
        """Each verifier with i.i.d. trees, and with delayed trees unless it is in `PATH_VERIFIERS`. For `BY_ROLLOUTS`,
        there is also a contest with i.i.d. trees for each K above 1.
        """
        contests = [
            Contest(verifier, drafting)
            for verifier in self.verifiers
            for drafting in (Drafting.IID, Drafting.DELAYED)
            if drafting == Drafting.IID or verifier not in PATH_VERIFIERS
        ]
        if BY_ROLLOUTS in self.verifiers:
            contests += [Contest(BY_ROLLOUTS, Drafting.IID, k) for k in range(2, self.k + 1)]
        return contests

    def selecting(self) -> list[Contest]:
        """Contests with a selector; empty if the request leaves out shapes that a selector can choose."""
        if not self.selectors or self.k < MOST.k or self.length < max(MOST.l1, MOST.l2):
            return []
        return [Contest(name, Drafting.SELECTOR) for name in self.verifiers if name not in PATH_VERIFIERS]

    def belongs(self, shape: DelayedTree, contest: Contest) -> bool:
        """Whether a contest allows one of its verifier's shapes."""
        iid = shape.l1 == 0 and shape.depth <= self.length
        return contest.k in (None, shape.k) and (iid or contest.drafting == Drafting.DELAYED)

    def places(self) -> list[TextKey]:
        """All texts, in a fixed order."""
        return [
            TextKey(sampling, task, prompt)
            for sampling in range(len(self.samplings))
            for task, prompts in self.tasks.items()
            for prompt in range(len(prompts))
        ]

    @property
    def record_count(self) -> int:
        """Number of records of a complete log: one for each evaluated text, and one for each decoding of a text."""
        places = self.places()
        return len(places) + sum(place.prompt < self.decoded for place in places) * self.repeats


def samplings(temperatures: tuple[float, ...], top_ps: tuple[float, ...]) -> tuple[Sampling, ...]:
    """Each temperature with top-p 1, then each top-p with temperature 1 (the paper, section 4.1)."""
    settings = [Sampling(temperature) for temperature in temperatures]
    return tuple(dict.fromkeys([*settings, *(Sampling(1.0, 0, top_p) for top_p in top_ps)]))


def label(sampling: Sampling) -> str:
    """Column head of a sampling setting: its top-p if that is below 1, else its temperature."""
    return f"p {sampling.top_p:g}" if sampling.top_p < 1 else f"T {sampling.temperature:g}"


STAND_INS = {
    "writing": ("LitBench", "Writing"),
    "coding": ("LiveCodeBench", "Coding"),
    "translation": ("Opus", "Translation"),
    "math_reasoning": ("MATH500", "Math (E)"),
    "math": ("OlympiadBench", "Math (H)"),
}
"""By task of Spec-Bench: the data set of the paper that it replaces, and the head of its column in tables 8 and 9."""
Tasks: TypeAlias = dict[str, tuple[AnyPrompt, ...]]
OWN = "prompts"
"""Name of the task that consists of prompts from the command line."""


def spec_bench(folder: Path, names: Sequence[str], count: int) -> Tasks:
    """First `count` prompts of each named task; a prompt is the first turn of a question."""
    try:
        prompts = first_turns(folder / FILE)
    except PromptError as error:
        raise PromptError(f"{error}, or give --prompt-file instead") from None
    unknown = [name for name in names if name not in prompts]
    require(
        not unknown,
        f"--tasks names {quoted(', '.join(unknown))}, which is unknown; choose from {', '.join(prompts)}",
    )
    return {name: tuple(prompts[name][:count]) for name in names}


def given(prompts: Sequence[AnyPrompt]) -> Tasks:
    """A single task with the prompts from the command line; raises ConfigError if there are none."""
    if not prompts:
        raise ConfigError("there is no prompt; give --prompt or --data")
    return {OWN: tuple(prompts)}


class RoundCosts(msgspec.Struct, frozen=True, kw_only=True):
    """Times of forward passes, in seconds."""

    first_s: float
    """Time of the first draft pass of a round, over the last committed token."""
    level_s: tuple[float, ...]
    """Time of a later draft pass of a round, indexed by the number of rows."""
    verify_s: tuple[float, ...]
    """Time of the target pass, indexed by the number of rows, root included."""

    def seconds(self, shape: DelayedTree) -> float:
        """Time of the passes of a round with a tree of this shape, assuming that no two rollouts share a node."""
        if not shape.depth:
            return self.verify_s[1]
        levels = [1] * shape.l1 + [shape.k] * (shape.l2 - 1) if shape.l2 else [1] * (shape.l1 - 1)
        return self.first_s + sum(_at(self.level_s, rows) for rows in levels) + _at(self.verify_s, 1 + shape.most_nodes)


def round_costs(measured: Sequence[Costs]) -> RoundCosts:
    """Lowest times of repeated measurements, since disturbances only add time; times never fall with more rows."""
    return RoundCosts(
        first_s=min(costs.catch_up.seconds(1) for costs in measured),
        level_s=_least([costs.draft.by_rows() for costs in measured]),
        verify_s=_least([[0.0, costs.plain_s(), *costs.verify.by_rows()[2:]] for costs in measured]),
    )


def _least(curves: Sequence[Sequence[float]]) -> tuple[float, ...]:
    least = map(min, zip(*curves, strict=True))
    return tuple(accumulate(reversed([*least]), min))[::-1]


def _at(seconds: tuple[float, ...], rows: int) -> float:
    """Time of a pass; beyond the measured range, it is extrapolated linearly from the upper half of the range."""
    if rows < len(seconds):
        return seconds[rows]
    last, half = len(seconds) - 1, len(seconds) // 2
    return seconds[last] + (rows - last) * max(0.0, seconds[last] - seconds[half]) / (last - half)


BOUND = "bound"


class Expected(msgspec.Struct, frozen=True, kw_only=True, tag="expected"):
    """Results of the closed forms on one sampled text: means over its roots."""

    place: TextKey
    roots: int
    tokens: dict[str, tuple[float, ...]]
    """For each verifier, the expected block efficiency of each shape, in the order of `SamplingRequest.shapes`."""
    selected: dict[str, float]
    """Expected block efficiency of the shapes that the selector chooses, by verifier."""
    distance: tuple[float, ...]
    """L1 distance between target and draft probabilities at depth 0, 1, ... along a path sampled from the draft."""
    acceptance: dict[str, tuple[float, ...]]
    """Acceptance by solver and depth of this path: probability that the solver's token is among K draft tokens.

    The key `BOUND` has the upper bound on the acceptance of any solver.
    """


class Decoded(msgspec.Struct, frozen=True, kw_only=True):
    contender: str
    tokens: int
    rounds: int
    decode_s: float
    waited: float | None
    """Waiting time of all threads for a processor, divided by the turn's time; None if unknown."""


class Realised(msgspec.Struct, frozen=True, kw_only=True, tag="realised"):
    """Results of decoding one text with all contenders, one after the other."""

    place: TextKey
    repeat: int
    turns: tuple[Decoded, ...]


SCHEMA = 2
Header: TypeAlias = LogHeader[SamplingRequest, RoundCosts]
SamplingLog: TypeAlias = RecordLog[Header, Expected | Realised]
FORMAT: LogFormat[Header, Expected | Realised] = LogFormat(
    msgspec.json.Decoder(Header | Expected | Realised), SCHEMA, "set --output to another file"
)
