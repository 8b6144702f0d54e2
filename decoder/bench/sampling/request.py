"""Sampling settings, verifiers and tree shapes that are compared. Knows no models."""

from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from decoder.draft.delayed_shape import DelayedTree, distinct_shapes
from decoder.errors import require
from decoder.sampling.settings import Sampling
from decoder.selector.actions import MOST
from decoder.verify.names import VERIFIER_NAMES, Drafting

PATH_VERIFIERS = ("naive", "block")
"""Verifiers of one path, compared on chains only."""
BY_ROLLOUTS = "traversal"
"""Verifier that the paper's tables list by number of rollouts."""
DRAFTINGS = (Drafting.IID, Drafting.DELAYED)
"""Draftings whose trees have the same shape in every round."""
HIGHEST_K, HIGHEST_LENGTH = 8, 16
"""Upper bounds of K and L; the work grows with the number of shapes."""


class Place(NamedTuple):
    """Address of a text: number of its sampling setting, its task, its number in the task."""

    sampling: int
    task: str
    prompt: int


@dataclass(frozen=True)
class Contest:
    """Verifier on trees of one drafting, of which it takes the best shape."""

    verifier: str
    drafting: Drafting
    k: int | None = None
    """Fixed number of rollouts; None: any."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides the measurement; only the same request resumes a log."""

    target: str
    draft: str
    device: str
    dtype: str
    draft_dtype: str
    seed: int
    samplings: tuple[Sampling, ...]
    tasks: dict[str, tuple[str, ...]]
    """Prompts by task."""
    verifiers: tuple[str, ...]
    k: int
    """Largest number of rollouts."""
    length: int
    """Most draws of the path before the rollouts, and of each rollout."""
    max_new_tokens: int
    roots_every: int
    """Tokens of sampled text between the roots at which trees are drawn."""
    decoded: int
    """Number of prompts of each task that are decoded too."""
    repeats: int
    """Repeats of each decoded text."""
    selectors: tuple[str, ...] = ()
    """Selectors that choose shapes in each round: the verifier each was trained for, with its file's SHA-256."""

    def __post_init__(self) -> None:
        unknown = [name for name in self.verifiers if name not in VERIFIER_NAMES]
        require(
            bool(self.verifiers) and not unknown,
            f"--verifiers names {', '.join(unknown) or 'none'}; choose from {', '.join(VERIFIER_NAMES)}",
        )
        require(1 <= self.k <= HIGHEST_K, f"--k is {self.k}; give 1 to {HIGHEST_K}")
        require(1 <= self.length <= HIGHEST_LENGTH, f"--length is {self.length}; give 1 to {HIGHEST_LENGTH}")
        require(self.max_new_tokens >= 1, f"--max-new-tokens is {self.max_new_tokens}; give 1 or more")
        require(self.roots_every >= 1, f"--roots-every is {self.roots_every}; give 1 or more")
        require(self.decoded >= 0, f"--decoded is {self.decoded}; give 0 or more")
        greedy = any(sampling.greedy for sampling in self.samplings)
        require(not greedy, "temperature 0 draws nothing, and all verifiers are then alike; give more than 0")
        require(bool(self.samplings), "no temperature was given; give --temperatures or --top-p")

    def shapes(self, verifier: str) -> list[DelayedTree]:
        """Shapes that a verifier is compared on, in a fixed order."""
        one_path = verifier in PATH_VERIFIERS
        return [shape for shape in distinct_shapes(self.k, self.length, self.length) if shape.k == 1 or not one_path]

    def contests(self) -> list[Contest]:
        """Every verifier on every drafting that matters to it, and traversal by number of rollouts."""
        contests = [
            Contest(verifier, drafting)
            for verifier in self.verifiers
            for drafting in DRAFTINGS
            if drafting == Drafting.IID or verifier not in PATH_VERIFIERS
        ]
        if BY_ROLLOUTS in self.verifiers:
            contests += [Contest(BY_ROLLOUTS, Drafting.IID, k) for k in range(2, self.k + 1)]
        return contests

    def selecting(self) -> list[Contest]:
        """Contests with a selector, where all shapes that it can choose are compared."""
        if not self.selectors or self.k < MOST.k or self.length < max(MOST.l1, MOST.l2):
            return []
        return [Contest(name, Drafting.SELECTOR) for name in self.verifiers if name not in PATH_VERIFIERS]

    def belongs(self, shape: DelayedTree, contest: Contest) -> bool:
        """Whether trees of a shape may take part in a contest."""
        if shape.k > 1 and contest.verifier in PATH_VERIFIERS:
            return False
        if contest.k not in (None, shape.k):
            return False
        return contest.drafting == Drafting.DELAYED or (shape.l1 == 0 and shape.depth <= self.length)

    def places(self) -> list[Place]:
        """All texts, in a fixed order."""
        return [
            Place(sampling, task, prompt)
            for sampling in range(len(self.samplings))
            for task, prompts in self.tasks.items()
            for prompt in range(len(prompts))
        ]

    def decodes(self, place: Place) -> bool:
        """Whether a text is decoded with the best shapes."""
        return place.prompt < self.decoded


def samplings(temperatures: tuple[float, ...], top_ps: tuple[float, ...]) -> tuple[Sampling, ...]:
    """Each temperature without truncation, then temperature 1 with each top-p (the paper, section 4.1)."""
    settings = [Sampling(temperature) for temperature in temperatures]
    return tuple(dict.fromkeys([*settings, *(Sampling(1.0, 0, top_p) for top_p in top_ps)]))


def label(sampling: Sampling) -> str:
    """Column head of a setting: its temperature, or its top-p where it truncates."""
    return f"p {sampling.top_p:g}" if sampling.top_p < 1 else f"T {sampling.temperature:g}"
