"""What is compared: settings of sampling, verifiers, and shapes of the trees that they judge. Knows no models."""

from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from decoder.draft.delayed_shape import DelayedTree, distinct_shapes
from decoder.errors import require
from decoder.sampling.settings import Sampling
from decoder.selector.actions import MOST
from decoder.verify.names import VERIFIER_NAMES, Drafting

PATH_VERIFIERS = ("naive", "block")
"""Those that look at one path: they are compared on chains alone."""
BY_ROLLOUTS = "traversal"
"""The verifier that the paper's tables tell by its number of rollouts."""
DRAFTINGS = (Drafting.IID, Drafting.DELAYED)
"""Of trees whose shape is the same in every round."""
HIGHEST_K, HIGHEST_LENGTH = 8, 16
"""A measurement's work grows with the number of shapes."""


class Place(NamedTuple):
    """Which text of a measurement it is: the number of its setting of sampling, its task, its number there."""

    sampling: int
    task: str
    prompt: int


@dataclass(frozen=True)
class Contest:
    """A verifier on trees of one drafting, which may take the shape that serves it best."""

    verifier: str
    drafting: Drafting
    k: int | None = None
    """So many rollouts and no others; None: any number."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """All that decides what is measured; a stopped measurement goes on only with the same."""

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
    """Most rollouts."""
    length: int
    """Most draws of the path before the rollouts, and of each rollout."""
    max_new_tokens: int
    roots_every: int
    """Tokens of sampled text between the roots at which trees are drawn."""
    decoded: int
    """Prompts of each task that are decoded too."""
    repeats: int
    """Times that each of these is decoded with each of the shapes that were best."""
    selectors: tuple[str, ...] = ()
    """What chooses shapes in each round: the verifiers that it was trained for, each with its file's SHA-256."""

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
        """The shapes that a verifier is compared on, in one order."""
        one_path = verifier in PATH_VERIFIERS
        return [shape for shape in distinct_shapes(self.k, self.length, self.length) if shape.k == 1 or not one_path]

    def contests(self) -> list[Contest]:
        """Every verifier on every drafting that makes a difference to it, and traversal by its rollouts."""
        found = [
            Contest(verifier, drafting)
            for verifier in self.verifiers
            for drafting in DRAFTINGS
            if drafting == Drafting.IID or verifier not in PATH_VERIFIERS
        ]
        if BY_ROLLOUTS in self.verifiers:
            found += [Contest(BY_ROLLOUTS, Drafting.IID, k) for k in range(2, self.k + 1)]
        return found

    def selecting(self) -> list[Contest]:
        """Every verifier of trees whose shape is chosen in each round, where a selector's shapes are all compared."""
        if not self.selectors or self.k < MOST.k or self.length < max(MOST.l1, MOST.l2):
            return []
        return [Contest(name, Drafting.SELECTOR) for name in self.verifiers if name not in PATH_VERIFIERS]

    def belongs(self, shape: DelayedTree, contest: Contest) -> bool:
        """Whether a contest is open to trees of a shape."""
        if shape.k > 1 and contest.verifier in PATH_VERIFIERS:
            return False
        if contest.k not in (None, shape.k):
            return False
        return contest.drafting == Drafting.DELAYED or (shape.l1 == 0 and shape.depth <= self.length)

    def places(self) -> list[Place]:
        """Every text, in one order."""
        return [
            Place(sampling, task, prompt)
            for sampling in range(len(self.samplings))
            for task, prompts in self.tasks.items()
            for prompt in range(len(prompts))
        ]

    def decodes(self, place: Place) -> bool:
        """Whether a text is decoded with the shapes that were best."""
        return place.prompt < self.decoded


def samplings(temperatures: tuple[float, ...], top_ps: tuple[float, ...]) -> tuple[Sampling, ...]:
    """Each temperature without truncation, then temperature 1 with each top-p: the paper's section 4.1."""
    settings = [Sampling(temperature) for temperature in temperatures]
    return tuple(dict.fromkeys([*settings, *(Sampling(1.0, 0, top_p) for top_p in top_ps)]))


def label(sampling: Sampling) -> str:
    """A setting as a column's head: its temperature, or its top-p where it truncates."""
    return f"p {sampling.top_p:g}" if sampling.top_p < 1 else f"T {sampling.temperature:g}"
