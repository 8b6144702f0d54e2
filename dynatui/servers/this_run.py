"""What the rounds of a run at temperature 0 say of a server, as a profile: acceptance by position of the chain of first
children of each round's tree. At other temperatures rounds share their noise with the target, which no server does.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from decoder.analysis.interval import students_t, variance_of_mean
from decoder.analysis.round_costs import RoundCosts
from decoder.events import LENGTH, Round, Run
from dynatui.servers.profile_file import (
    LONGEST_CHAIN,
    SCHEMA,
    Chain,
    Costs,
    DraftKind,
    DraftProfile,
    Ends,
    ModelSize,
    Profile,
)

FEWEST_ROUNDS = 30
_KNOWN = 0.95
"""Least share of rounds that drafted a position, or had a token rejected before it, for it to be judged."""


@dataclass(frozen=True)
class Chains:
    """Drafted and accepted tokens of the rounds of a text, in order."""

    drafted: tuple[int, ...] = ()
    accepted: tuple[int, ...] = ()

    @property
    def longest(self) -> int:
        """Largest position that is judged; the few rounds that do not show it count as rejected there."""
        pairs = list(zip(self.drafted, self.accepted, strict=True))
        for k in range(min(LONGEST_CHAIN, max(self.drafted, default=0)), 0, -1):
            if sum(drafted >= k or accepted < drafted for drafted, accepted in pairs) >= _KNOWN * len(pairs):
                return k
        return 0


def chains_of(rounds: Iterable[Round]) -> Chains:
    """Leaves out rounds that the end of the text has cut, and rounds without a draft."""
    pairs = [pair for event in rounds if event.limited_by != LENGTH and (pair := _chain(event))[0]]
    return Chains(tuple(drafted for drafted, _ in pairs), tuple(accepted for _, accepted in pairs))


def _chain(event: Round) -> tuple[int, int]:
    first = {parent: node for node, parent in reversed(list(enumerate(event.parents))) if node}
    node, path = 0, list[int]()
    while (child := first.get(node)) is not None:
        path.append(child)
        node = child
    right = set(event.accepted)
    accepted = next((place for place, each in enumerate(path) if each not in right), len(path))
    return len(path), accepted


def profile_of(
    run: Run, chains: Chains, costs: RoundCosts | None, plain_pass_s: float | None, kind: DraftKind
) -> Profile:
    """Needs `FEWEST_ROUNDS` rounds with at least one judged position."""
    accepted = np.array(chains.accepted)
    every = [_judged(accepted, k) for k in range(1, chains.longest + 1)]
    whole = every[-1]
    draft = DraftProfile(
        rounds=whole.rounds,
        survival=whole.survival,
        intervals=whole.intervals,
        length_interval=whole.length_interval,
        shorter=tuple(every[:-1]),
        kind=kind,
    )
    known = None
    if costs and plain_pass_s:
        k = chains.longest
        known = Costs(
            source="measured",
            device=run.device,
            context=len(run.prompt_tokens),
            target_s={1: plain_pass_s, 1 + k: plain_pass_s + k * costs.row_s},
            draft_s={} if kind == "lookup" else {run.draft: costs.level_s},
        )
    return Profile(
        schema=SCHEMA,
        target=run.target,
        drafts={run.draft: draft},
        costs=known,
        size=ModelSize(name=run.target),
        prompts=1,
        tokens=len(accepted) + int(accepted.sum()),
        mean_context=len(run.prompt_tokens) + run.max_new_tokens / 2,
    )


def _judged(accepted: NDArray[np.int64], k: int) -> Chain:
    """Of the first `k` tokens of the drafts; shorter drafts would begin some rounds elsewhere."""
    reached = [(accepted >= place).astype(float) for place in range(1, k + 1)]
    lengths = 1 + np.minimum(accepted, k).astype(float)
    low, high = _ends(lengths)
    return Chain(
        rounds=len(accepted),
        survival=tuple(float(each.mean()) for each in reached),
        intervals=tuple(_share_ends(each) for each in reached),
        length_interval=(max(1.0, low), min(1.0 + k, high)),
    )


def _share_ends(series: NDArray[np.float64]) -> Ends:
    low, high = _ends(series)
    return max(0.0, low), min(1.0, high)


def _ends(series: NDArray[np.float64]) -> tuple[float, float]:
    """Of the mean, whose neighbours are correlated; where all are equal, by the rule of three."""
    mean = float(series.mean())
    variance, freedom = variance_of_mean(series)
    half = students_t(round(freedom, 1)) * math.sqrt(variance) if variance > 0 else 3 / len(series)
    return mean - half, mean + half
