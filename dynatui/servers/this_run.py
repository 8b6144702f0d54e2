"""A profile for servers from the rounds of a run at temperature 0: acceptance by position in the chain of first
children of each round's tree. Above temperature 0, draft and target use the same noise here, but on no server.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from decoder.analysis.interval import students_t, variance_of_mean
from decoder.analysis.round_costs import RoundCosts
from decoder.events import LENGTH, Round, Run
from decoder.models.names import DraftKind
from dynatui.servers.profile_file import LONGEST_CHAIN, SCHEMA, Chain, Costs, DraftProfile, ModelSize, Profile

FEWEST_ROUNDS = 30
_KNOWN = 0.95
"""A position is judged if at least this share of rounds drafted it or had a token rejected before it."""


@dataclass(frozen=True)
class Chains:
    """Drafted and accepted tokens of rounds, in order."""

    drafted: tuple[int, ...] = ()
    accepted: tuple[int, ...] = ()
    texts: int = 1
    """Number of texts with these rounds."""

    def plus(self, other: "Chains") -> "Chains":
        if not self.drafted or not other.drafted:
            return self if self.drafted else other
        return Chains(self.drafted + other.drafted, self.accepted + other.accepted, self.texts + other.texts)

    @property
    def longest(self) -> int:
        """Largest judged position; the few drafts that end before it without a rejection count as rejected there."""
        drafted, accepted = np.array(self.drafted), np.array(self.accepted)
        deepest = min(LONGEST_CHAIN, max(self.drafted, default=0))
        shown = (k for k in range(deepest, 0, -1) if ((drafted >= k) | (accepted < drafted)).mean() >= _KNOWN)
        return next(shown, 0)


def chains_of(rounds: Iterable[Round]) -> Chains:
    """The chains of all rounds, except rounds without a draft and rounds that were cut by the end of the text."""
    pairs = [pair for event in rounds if event.limited_by != LENGTH and (pair := _chain(event))[0]]
    return Chains(tuple(drafted for drafted, _ in pairs), tuple(accepted for _, accepted in pairs))


def _chain(event: Round) -> tuple[int, int]:
    """Drafted and accepted tokens of the chain of first children."""
    node, path = 0, list[int]()
    while node in event.parents:
        node = event.parents.index(node)
        path.append(node)
    right = [node in event.accepted for node in path]
    return len(path), [*right, False].index(False)


def profile_of(
    run: Run, chains: Chains, costs: RoundCosts | None, plain_pass_s: float | None, kind: DraftKind
) -> Profile:
    """The profile; `chains` must have at least `FEWEST_ROUNDS` rounds, and at least one judged position (`longest`)."""
    accepted, longest = np.array(chains.accepted), chains.longest
    *shorter, whole = (_judged(accepted, k) for k in range(1, longest + 1))
    known = None
    if costs and plain_pass_s:
        known = Costs(
            source="measured",
            device=run.device,
            context=len(run.prompt_tokens),
            target_s={1: plain_pass_s, 1 + longest: plain_pass_s + longest * costs.row_s},
            draft_s={} if kind == "lookup" else {run.draft: costs.level_s},
        )
    return Profile(
        schema=SCHEMA,
        target=run.target,
        drafts={run.draft: DraftProfile(**structs.asdict(whole), shorter=tuple(shorter), kind=kind)},
        costs=known,
        size=ModelSize(name=run.target),
        prompts=chains.texts,
        tokens=len(accepted) + int(accepted.sum()),
        mean_context=len(run.prompt_tokens) + run.max_new_tokens / 2,
    )


def _judged(accepted: NDArray[np.int64], k: int) -> Chain:
    """Acceptance of the first `k` tokens of each chain; approximate, as rounds of shorter chains begin elsewhere."""
    reached = accepted[:, None] >= np.arange(1, k + 1)
    return Chain(
        rounds=len(accepted),
        survival=tuple(reached.mean(axis=0).tolist()),
        intervals=tuple(_ends(column, 0, 1) for column in reached.T),
        length_interval=_ends(1 + np.minimum(accepted, k), 1, 1 + k),
    )


def _ends(series: NDArray[Any], least: float, most: float) -> tuple[float, float]:
    """95 % interval of the mean of a series with correlated neighbours; by the rule of three for equal values."""
    mean = float(series.mean())
    variance, freedom = variance_of_mean(series.astype(float))
    half = students_t(round(freedom, 1)) * math.sqrt(variance) if variance > 0 else 3 / len(series)
    return max(least, mean - half), min(most, mean + half)
