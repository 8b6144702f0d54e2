"""Request of a comparison: prompts, sampling settings, verifiers and tree shapes; does not depend on models."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

from decoder.draft.delayed_shape import DelayedTree, distinct_shapes
from decoder.errors import ConfigError, PromptError, quoted, require
from decoder.prompts.prompt import AnyPrompt
from decoder.sampling.settings import Sampling
from decoder.selector.actions import MOST
from decoder.verify.names import VERIFIER_NAMES, Drafting
from dynatui.lab.bench.data_sets import FILE, first_turns
from dynatui.lab.bench.on_pair import PairRequest

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


@dataclass(frozen=True)
class Contest:
    """Verifier with one kind of drafting; comparisons use the best tree shape that this drafting allows."""

    verifier: str
    drafting: Drafting
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
        if (shape.k > 1 and contest.verifier in PATH_VERIFIERS) or contest.k not in (None, shape.k):
            return False
        return contest.drafting == Drafting.DELAYED or (shape.l1 == 0 and shape.depth <= self.length)

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
        return len(places) + sum(map(self.decodes, places)) * self.repeats

    def decodes(self, place: TextKey) -> bool:
        """Whether a text is also decoded, not only evaluated by closed forms."""
        return place.prompt < self.decoded


def samplings(temperatures: tuple[float, ...], top_ps: tuple[float, ...]) -> tuple[Sampling, ...]:
    """Each temperature with top-p 1, then each top-p with temperature 1 (the paper, section 4.1)."""
    settings = [Sampling(temperature) for temperature in temperatures]
    return tuple(dict.fromkeys([*settings, *(Sampling(1.0, 0, top_p) for top_p in top_ps)]))


def label(sampling: Sampling) -> str:
    """Column head of a sampling setting: its top-p if that is below 1, else its temperature."""
    return f"p {sampling.top_p:g}" if sampling.top_p < 1 else f"T {sampling.temperature:g}"


STAND_INS = {
    "writing": "LitBench",
    "coding": "LiveCodeBench",
    "translation": "Opus",
    "math_reasoning": "MATH500",
    "math": "OlympiadBench",
}
"""Data set of the paper that each task of Spec-Bench replaces, in the order of the paper's columns."""
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
