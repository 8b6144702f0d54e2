"""How deep the next draft goes and how many of its nodes are verified, where the rules leave that to what it costs.

On a device the price of a pass hardly depends on its rows, and a draft's on its depth alone; so a round is chosen from
a few sizes by what it has taken and brought so far, in tokens a second. What smaller sizes would have brought is known
from each round; of larger ones a little more is hoped for, and what was not tried for long is hoped for again. Where no
draft is worth its time, rounds are plain for a while, and now and then a small draft asks again. Pure.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from decoder.session.cuda_graph.pass_sizes import DEPTHS, SIZES
from decoder.session.cuda_graph.static_shapes import DEEPEST

FIRST_HIT = 0.6
"""Chance of the most probable token, before anything was seen."""
FIRMNESS = 2.0
"""Rounds that what is expected weighs as much as."""
HOPE = 0.1
"""Share of what is missing that twice as many nodes are expected to find."""
KEPT = 0.97
"""Share of what was seen that a round leaves."""
STEP = 0.15
"""How far a time follows a round."""
ODD = 1.25
"""A time that is longer or shorter by more counts as if it were not."""
FIRST_REST, LONGEST_REST = 32, 128
"""Plain rounds before a small draft asks again; twice as many each time that it was in vain."""
CHEAP = 0.4
"""Where asking in vain loses more plain rounds than this, rests are longer."""
FADED = 0.5
"""Share of what was seen that counts after a rest, and on another text."""
HELD = 4
"""Further rounds of a size that was found best."""
ASKING = 2
"""Rounds that ask: the first one's answer is known when the second is under way."""


@dataclass(frozen=True)
class Plan:
    """The size of a round."""

    depth: int
    nodes: int
    """Rows of its verification, the root among them."""


ASK = Plan(1, 4)


class Odds:
    """How often the target's path reaches a depth within the so many most probable nodes."""

    def __init__(self) -> None:
        self._tried = np.zeros((DEEPEST + 1, len(SIZES)))
        self._reached = np.zeros((DEEPEST + 1, len(SIZES)))

    def learn(self, plan: Plan, ranks: Sequence[int]) -> None:
        """Takes note of a round: the ranks, from 1, of the accepted nodes among all nodes of its tree."""
        self.fade(KEPT)
        known = bisect_right(SIZES, plan.nodes)
        self._tried[1 : plan.depth + 1, :known] += 1
        for depth, rank in enumerate(ranks[: plan.depth], 1):
            self._reached[depth, bisect_right(SIZES, rank) : known] += 1

    def fade(self, kept: float) -> None:
        """Leaves this share of what was seen."""
        self._tried *= kept
        self._reached *= kept

    def expected(self, deepest: int) -> list[list[float]]:
        """Accepted tokens by depth, from 0 on, and size."""
        seen = np.stack([self._tried, self._reached], -1).tolist()
        chances = [[1.0] * len(SIZES)]
        totals = [[0.0] * len(SIZES)]
        for depth in range(1, deepest + 1):
            above, found = chances[-1], list[float]()
            for index, (tried, reached) in enumerate(seen[depth]):
                before = chances[-2][index] if depth > 1 else 1.0
                guess = above[index] * (above[index] / before if depth > 1 else FIRST_HIT)
                fewer = found[-1] if found else 0.0
                guess = max(guess, fewer + HOPE * (above[index] - fewer))
                chance = (reached + FIRMNESS * guess) / (tried + FIRMNESS)
                found.append(min(above[index], max(fewer, chance, 1e-9)))
            chances.append(found)
            totals.append([total + chance for total, chance in zip(totals[-1], found, strict=True)])
        return totals


class Times:
    """Seconds of something by its size; sizes that were not seen yet are guessed from the nearest that was."""

    def __init__(self, *, proportional: bool) -> None:
        self._proportional = proportional
        self._seconds: dict[int, float] = {}

    def seconds(self, size: int) -> float:
        """How long it is expected to take; 0 before anything was seen."""
        if size in self._seconds or not self._seconds:
            return self._seconds.get(size, 0.0)
        nearest = min(self._seconds, key=lambda seen: abs(seen - size))
        return self._seconds[nearest] * (size / nearest if self._proportional else 1.0)

    def learn(self, size: int, seconds: float) -> None:
        """Takes note of how long it took."""
        expected = self.seconds(size)
        if size not in self._seconds:
            self._seconds[size] = min(seconds, 2 * expected) if expected else seconds
        elif expected > 0 and seconds > 0:
            self._seconds[size] = expected * min(ODD, max(1 / ODD, seconds / expected)) ** STEP


class GraphSizeController:
    """Chooses the size of each round of a pair's texts."""

    def __init__(self) -> None:
        self.odds = Odds()
        self.draft_s = Times(proportional=True)
        self.verify_s = Times(proportional=False)
        self.host_s = Times(proportional=False)
        """What a round that drafts takes beside both; of one size."""
        self.plain_s = Times(proportional=False)
        """A whole plain round; of one size."""
        self._resting = 0
        self._rest = FIRST_REST
        self._asking = ASKING
        self._chosen: tuple[Plan, int] | None = None
        """The best size, and how many more rounds may take it."""

    def begin(self) -> None:
        """A new text: what was learnt from others weighs less, and small drafts test how predictable it is."""
        self.odds.fade(FADED)
        self._resting, self._rest, self._chosen = 0, FIRST_REST, None
        # Times may have been odd: where no draft could pay by them, one round looks again.
        self._asking = ASKING if self._could_pay() else 1

    def choose(self, deepest: int) -> Plan | None:
        """The size of the next round, no node of which may be deeper; None: no draft."""
        if self._resting:
            self._resting -= 1
            if not self._resting:
                self.odds.fade(FADED)
                self._asking = ASKING * self._could_pay()
            return None
        if self._chosen and self._chosen[1]:
            plan, left = self._chosen
            self._chosen = plan, left - 1
            return Plan(min(plan.depth, deepest), plan.nodes)
        asks = self._asking > 0
        self._asking -= asks
        plan, gain = self._best(deepest)
        if gain > 1 and self.draft_s.seconds(1):
            self._chosen = plan, HELD
            return plan
        self._chosen = None
        if asks:
            return ASK
        self._resting = min(LONGEST_REST, int(self._rest * max(1.0, (self._price(ASK) - 1) / CHEAP)))
        self._rest = min(LONGEST_REST, 2 * self._rest)
        return None

    def learn(self, plan: Plan, ranks: Sequence[int]) -> None:
        """Takes note of which nodes of a round of this size were accepted, by their ranks from 1."""
        self.odds.learn(plan, ranks)

    def timed(self, plan: Plan | None, draft_s: float, verify_s: float, round_s: float) -> None:
        """Takes note of what a round took."""
        if plan is None:
            # The device may have worked on it before the round began.
            self.plain_s.learn(1, max(round_s, verify_s))
            self.verify_s.learn(1, verify_s)
            return
        self.draft_s.learn(plan.depth, draft_s)
        self.verify_s.learn(plan.nodes, verify_s)
        self.host_s.learn(1, max(0.0, round_s - draft_s - verify_s))

    def _price(self, plan: Plan) -> float:
        """How many plain rounds one of this size costs; 0 before anything was seen."""
        plain_s = self.plain_s.seconds(1) or self.verify_s.seconds(1)
        seconds = self.draft_s.seconds(plan.depth) + self.verify_s.seconds(plan.nodes) + self.host_s.seconds(1)
        return seconds / plain_s if plain_s else 0.0

    def _could_pay(self) -> bool:
        """Whether guesses that are always right would."""
        return any(self._price(Plan(depth, SIZES[-1])) < 1 + depth for depth in DEPTHS)

    def _best(self, deepest: int) -> tuple[Plan, float]:
        """The size that brings most tokens a second, and how many times as many as plain rounds."""
        expected = self.odds.expected(min(deepest, DEEPEST))
        best, gain = ASK, 0.0
        for depth in {min(depth, deepest, DEEPEST) for depth in DEPTHS}:
            for index, nodes in enumerate(SIZES):
                found = (1 + expected[depth][index]) / (self._price(Plan(depth, nodes)) or 1.0)
                if found > gain:
                    best, gain = Plan(depth, nodes), found
        return best, gain


def ranks(path_logprobs: Sequence[float], accepted: Sequence[int]) -> list[int]:
    """The places of the accepted nodes among all drafted ones by path probability, from 1; ties by their order."""
    order = sorted(range(1, len(path_logprobs)), key=lambda node: -path_logprobs[node])
    places = {node: place for place, node in enumerate(order, 1)}
    return [places[node] for node in accepted]
