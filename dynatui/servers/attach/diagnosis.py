"""What is wrong with a server's speculative decoding, from what it did and, if there is one, from a promise.

Two shares p1 of n1 and p2 of n2 rounds differ if the evidence

    n1 KL(p1, p) + n2 KL(p2, p) - log(4 sqrt(n1 n2)) with p = (n1 p1 + n2 p2) / (n1 + n2)

is at least log(comparisons / ERROR). It is a lower bound on the logarithm of a product of two mixtures of likelihood
ratios (Krichevsky and Trofimov 1981), which is a martingale as rounds are added. So (Ville 1939) the error holds for
all polls of a session together, however long, and for the profile's own error. Rounds of one text are alike: both n are
numbers of independent rounds, rounds / design effect, which the profile's interval over prompts tells.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import fmean

from dynatui.number_format import count, percent, short
from dynatui.servers.attach.course import Cell, Course, Span, load_class
from dynatui.servers.attach.events import Finding, Promise, PromisedChain
from dynatui.servers.attach.servers import Kind

ERROR = 0.01
"""Probability that a server which keeps its promise is ever reported in a session."""
ROUNDS = 100
"""Least rounds for a verdict."""
UNPROMISED_ROUNDS = 300
"""The same without a promise."""
TOKENS = 200
"""Generated tokens without any draft from which speculation is off."""
UNKNOWN_EFFECT = 10.0
"""Design effect where no profile tells it."""
NOTHING, LITTLE = 0.05, 0.1
"""Acceptance at a position, and its share of the promise, below which the draft knows nothing of the text there."""
MISWIRED = 0.2
"""Share of the promised conditional acceptance at position 2 below which later positions have failed."""
MORE = 0.5
"""Tokens a round beyond the advised ones at a load that are told."""
FULL, CUT_SHORT = 0.98, 0.8
"""Shares of K from which a promised draft does not vary in length, and of its tokens below which it is cut short."""
FALL, GROWTH, SAME_LOAD = 0.1, 1.2, 1.5
"""Relative fall of L-bar, and growth of the cache by request, that are told; and ratio of loads that count as equal."""
LOOP, FAR_ABOVE = 0.97, 0.05
"""Acceptance at the last position of texts that repeat themselves, if that is more than the promise by `FAR_ABOVE`."""
POLLS, SLOWER = 20, 0.97
"""Least readings of step times, and speed-up below which speculation is called slow."""


@dataclass(frozen=True)
class Seen:
    kind: Kind
    course: Course
    promise: Promise | None = None

    @property
    def life(self) -> Span:
        return self.course.life

    @property
    def k(self) -> int | None:
        """Most tokens that a round drafts; where the server does not tell it, the advised number."""
        return self.course.k or self.advised

    @property
    def advised(self) -> int | None:
        """The most at any load."""
        return max((k for _, _, k in self.promise.advised), default=None) if self.promise else None

    @property
    def chain(self) -> PromisedChain | None:
        """What is promised of the deployed chains."""
        if self.promise is None or not self.k:
            return None
        chains = self.promise.drafts[self.promise.draft]
        return chains[min(self.k, len(chains)) - 1]

    @property
    def effect(self) -> float:
        return self.chain.design_effect if self.chain else UNKNOWN_EFFECT

    @property
    def evidence(self) -> float:
        """The least evidence that is no chance."""
        comparisons = 3 + (self.k or len(self.life.accepted_at))
        return math.log(comparisons / ERROR)

    @property
    def varies(self) -> bool:
        """Whether drafts differ in length by promise, as those of lookups do."""
        return self.chain is not None and self.chain.drafted < FULL * len(self.chain.rates)

    @property
    def expected_draft(self) -> float | None:
        """Promised mean tokens of a draft, within what is advised at the loads that were seen; None if they vary."""
        if self.chain is None or self.promise is None or self.varies:
            return None
        advised = (self.advised_at(cell.running) for cell in self.course.cells.values())
        return min([self.chain.drafted, *map(float, filter(None, advised))])

    def advised_at(self, running: float) -> int | None:
        """The number of drafted tokens that is advised at a load."""
        bands = self.promise.advised if self.promise else ()
        return next((k for least, most, k in bands if least <= round(running) <= most), None)

    def compared(self, position: int) -> tuple[float, float]:
        """Acceptance at a position, from 0, as the profile counts it, and its rounds, 0 if it is unknown.

        Where drafts are cut short, the largest rate that the counts allow, as if later tokens were drafted least often.
        """
        if position >= len(self.life.accepted_at):
            return 0.0, 0.0
        drafted = self.life.rounds if self.varies else self.life.surely_drafted(position)
        return min(1.0, self.life.accepted_at[position] / drafted) if drafted else 0.0, drafted

    def below(self, position: int) -> bool:
        """Whether acceptance at a position is certainly less than promised."""
        chain = self.chain
        rate, rounds = self.compared(position)
        if chain is None or position >= len(chain.rates):
            return False
        promised = chain.rates[position]
        return rate < promised and differing(rate, rounds / self.effect, promised, chain.rounds) >= self.evidence


def findings(seen: Seen) -> tuple[Finding, ...]:
    """Without a promise, what needs none."""
    if off := _off(seen):
        return (off,)
    if seen.life.rounds < ROUNDS:
        return ()
    found = [finding for rule in _RULES if (finding := rule(seen)) is not None]
    if not {finding.cause for finding in found} & _LOW and (below := _below(seen)):
        found.append(below)
    return tuple(found)


def unchecked(seen: Seen | None, reason: str) -> Finding | None:
    """Why nothing tells whether the promise is kept; None if something does. `reason`: why no page was read."""
    if seen is None:
        because, remedy = reason or "no page of metrics was read", "check the address and that the server runs"
    elif seen.life.rounds < ROUNDS:
        because = f"{count(seen.life.rounds)} rounds were drafted, {ROUNDS} are needed"
        remedy = "send requests while it is watched, or watch it for longer (--polls)"
    elif seen.chain is None:
        because = f"{seen.kind.title} does not report how many tokens it drafts a round"
        remedy = "give the number (--draft-tokens K)"
    else:
        return None
    return Finding(cause="unchecked", claim=f"the promise was not checked: {because}", remedy=remedy)


def differing(one: float, rounds: float, other: float, other_rounds: float) -> float:
    """The evidence that two shares differ; see the module."""
    if min(rounds, other_rounds) < 1:
        return 0.0
    common = (rounds * one + other_rounds * other) / (rounds + other_rounds)
    ratio = rounds * _divergence(one, common) + other_rounds * _divergence(other, common)
    return ratio - math.log(4 * math.sqrt(rounds * other_rounds))


def _divergence(share: float, common: float) -> float:
    """KL of two Bernoulli distributions."""
    parts = ((share, common), (1 - share, 1 - common))
    return sum(part * math.log(part / whole) for part, whole in parts if part > 0 and whole > 0)


def _off(seen: Seen) -> Finding | None:
    if seen.promise is None or seen.life.rounds or seen.life.generated < TOKENS:
        return None
    told = f"speculation is off: {count(seen.life.generated)} tokens were generated, none was drafted"
    return Finding(cause="off", claim=told, remedy=f"start the server with {seen.kind.speculation}")


def _length(seen: Seen) -> Finding | None:
    advised, deployed = seen.advised, seen.course.k
    if advised is not None and deployed is not None and deployed != advised:
        where = f"up to {deployed}"
    else:
        more = next(_more_than_advised(seen), None)
        if more is None:
            return None
        cell, advised = more
        where = f"at {short(cell.running, 1)} running requests {short(cell.span.drafted_per_round, 1)}"
    return Finding(
        cause="length",
        claim=f"the server drafts {where} tokens a round, advised are {advised}",
        remedy=f"set {seen.kind.chain} to {advised}" if advised else "run it without a draft: none pays",
    )


def _more_than_advised(seen: Seen) -> Iterator[tuple[Cell, int]]:
    """Loads at which more tokens are drafted than is advised there."""
    for cell in seen.course.cells.values():
        advised = seen.advised_at(cell.running)
        if advised is not None and cell.span.rounds >= ROUNDS and cell.span.drafted_per_round > advised + MORE:
            yield cell, advised


def _broken(seen: Seen) -> Finding | None:
    rate = _first_rate(seen)
    promised = seen.chain.rates[0] if seen.chain else None
    if rate >= max(NOTHING, LITTLE * (promised or 0.0)):
        return None
    if promised is None:
        certain = seen.life.rounds >= UNPROMISED_ROUNDS
    else:
        rounds = seen.life.rounds / seen.effect
        certain = rate < promised and differing(rate, rounds, promised, _promised_rounds(seen)) >= seen.evidence
    if not certain:
        return None
    told = f"{percent(rate)} of the first tokens of {count(seen.life.rounds)} drafts are accepted{_promised(promised)}"
    return Finding(
        cause="broken",
        claim=f"the draft is broken: {told}",
        remedy="check its weights (a quantised head?), its tokenizer, and that it was made for this target",
    )


def _miswired(seen: Seen) -> Finding | None:
    rates, chain = seen.life.rates, seen.chain
    promised = chain.rates if chain else (0.5, 0.25)
    if len(rates) < 2 or len(promised) < 2 or rates[0] < 0.7 * promised[0]:
        return None
    if rates[1] >= MISWIRED * rates[0] * promised[1] / promised[0]:
        return None
    if not seen.below(1) if chain else seen.life.rounds < UNPROMISED_ROUNDS:
        return None
    first = f"position 1 {percent(rates[0])}{_promised(chain.rates[0] if chain else None)}"
    second = f"position 2 {percent(rates[1])}{_promised(chain.rates[1] if chain else None)}"
    return Finding(
        cause="miswired",
        claim=f"the draft fails from its second token on: {first}, {second}",
        remedy="check what the engine feeds it there (hidden states, positions, attention window); update the engine",
    )


def _cut_short(seen: Seen) -> Finding | None:
    expected, drafted = seen.expected_draft, seen.life.drafted_per_round
    if not expected or not drafted or drafted >= CUT_SHORT * expected:
        return None
    return Finding(
        cause="cut short",
        claim=f"drafts are cut short: {short(drafted)} tokens a round, not {short(expected)}",
        remedy="look for a least probability of drafted tokens, a number by batch size, or structured output",
    )


def _slow(seen: Seen) -> Finding | None:
    """By step times at the loads of which the recording without drafts tells one too."""
    if seen.promise is None or seen.below(0):
        return None
    plain = {load_class(point.running): point.step_s for point in seen.promise.plain if point.step_s}
    cells = [(cell, plain[place]) for place, cell in seen.course.cells.items() if place in plain and cell.steps]
    polls = sum(cell.steps for cell, _ in cells)
    if polls < POLLS:
        return None
    break_even = math.exp(sum(cell.log_s - cell.steps * math.log(plain_s) for cell, plain_s in cells) / polls)
    length = seen.life.length
    deviation = math.log(break_even / length)
    error = sum(_squared_error(cell) for cell, _ in cells) / polls**2
    if length / break_even >= SLOWER or deviation**2 < 2 * error * (seen.evidence + 2 * math.log(polls)):
        return None
    running = fmean(cell.running for cell, _ in cells)
    return Finding(
        cause="slow",
        claim=(
            f"drafts are accepted and yet cost time: at {short(running, 1)} running requests a round takes "
            f"{short(break_even)} times a step without drafts, so break-even is L-bar {short(break_even)}, and it is "
            f"{short(length)}"
        ),
        remedy="draft fewer tokens at this load, or none; dynatui advise with both recordings tells how many",
    )


def _squared_error(cell: Cell) -> float:
    """Variance of the sum of the logarithms, as if readings were independent."""
    return max(0.0, cell.squared - cell.log_s**2 / cell.steps) * cell.steps / max(1, cell.steps - 1)


def _restart(seen: Seen) -> Finding | None:
    before, now = seen.course.before, seen.life
    if before is None or before.rounds < ROUNDS or not _fell(seen, before, now):
        return None
    return Finding(
        cause="restart",
        claim=f"L-bar fell from {short(before.length)} to {short(now.length)} when the server restarted",
        remedy="compare version, options and draft before and after; go back if it is an upgrade",
    )


def _context(seen: Seen) -> Finding | None:
    pieces = seen.course.pieces
    quarter = len(pieces) // 4
    if not quarter:
        return None
    first, last = (_sum(part) for part in (pieces[:quarter], pieces[-quarter:]))
    low, high = sorted((first.mean_running, last.mean_running))
    grown = last.mean_cached / first.mean_cached if first.mean_cached else None
    windows = 1 + seen.life.rounds // first.rounds
    if not low or high > SAME_LOAD * low or (grown is not None and grown < GROWTH):
        return None
    if not _fell(seen, first, last, windows):
        return None
    cache = "" if grown is None else f", each with {short(grown)} times the KV cache"
    return Finding(
        cause="context",
        claim=(
            f"L-bar falls while the load stays: from {short(first.length)} to {short(last.length)} at "
            f"{short(last.mean_running, 1)} running requests{cache}"
        ),
        remedy="longer texts: draft fewer tokens there, or use a draft for long contexts",
    )


def _loop(seen: Seen) -> Finding | None:
    rates, chain = seen.life.rates, seen.chain
    rate = rates[-1] if rates else (seen.life.length - 1) / seen.k if seen.k else 0.0
    promised = chain.rates[-1] if chain else 0.0
    enough = seen.life.rounds >= (ROUNDS if chain else UNPROMISED_ROUNDS)
    if not enough or rate < max(LOOP, promised + FAR_ABOVE):
        return None
    return Finding(
        cause="loop",
        claim=f"{percent(rate)} of whole drafts are accepted{_promised(promised or None)}: the texts repeat themselves",
        remedy="read an answer (--prompt TEXT): repetition inflates every figure; or the draft is the target itself",
    )


def _below(seen: Seen) -> Finding | None:
    chain, rates = seen.chain, seen.life.rates
    if chain is None or seen.promise is None:
        return None
    if not rates:
        if not seen.k:
            return None
        rate, promised = seen.life.accepted_per_round / seen.k, sum(chain.rates) / seen.k
        ratio = differing(rate, seen.life.rounds / seen.effect, promised, chain.rounds)
        if rate >= promised or ratio < seen.evidence:
            return None
        told = ""
    else:
        places = [place for place in range(len(rates)) if seen.below(place)]
        if not places:
            return None
        told = f"position {places[0] + 1} {percent(seen.compared(places[0])[0])}{_promised(chain.rates[places[0]])}, "
    length = f"L-bar {short(seen.life.length)} (promised {short(1 + sum(chain.rates))})"
    other = next(_alike(seen, seen.promise), None)
    fits = f"the rates are those of {other}: deploy {seen.promise.draft}" if other else "check that it is this draft"
    return Finding(
        cause="below",
        claim=f"acceptance is below the promise: {told}{length}",
        remedy=f"{fits}, with the profiled target; else the traffic differs from the profile's prompts",
    )


def _alike(seen: Seen, promise: Promise) -> Iterator[str]:
    """Other drafts of the profile that promise what the server shows."""
    rates, rounds = seen.life.rates, seen.life.rounds
    for name, chains in promise.drafts.items():
        chain = chains[min(max(1, len(rates)), len(chains)) - 1]
        pairs = list(zip(rates, chain.rates, strict=False))
        ratios = [differing(rate, rounds / chain.design_effect, promised, chain.rounds) for rate, promised in pairs]
        if name != promise.draft and ratios and max(ratios) < seen.evidence:
            yield name


def _fell(seen: Seen, before: Span, after: Span, windows: int = 1) -> bool:
    """Whether L-bar is certainly lower, and by a share that matters; `windows` like these have been compared."""
    if not before.rounds or not after.rounds or after.length > (1 - FALL) * before.length:
        return False
    most = max(1.0, before.drafted_per_round, after.drafted_per_round, seen.k or 1)
    shares = [min(1.0, span.accepted_per_round / most) for span in (before, after)]
    rounds = [span.rounds / seen.effect for span in (before, after)]
    evidence = differing(shares[0], rounds[0], shares[1], rounds[1])
    return evidence >= seen.evidence + 2 * math.log(windows) + math.log(math.pi**2 / 6)


def _first_rate(seen: Seen) -> float:
    """Of position 1; if unknown, accepted tokens a round, which are no fewer."""
    return next(iter(seen.life.rates), seen.life.accepted_per_round)


def _promised_rounds(seen: Seen) -> float:
    return seen.chain.rounds if seen.chain else 0.0


def _promised(share: float | None) -> str:
    return "" if share is None else f" (promised {percent(share)})"


def _sum(spans: tuple[Span, ...]) -> Span:
    whole = Span()
    for span in spans:
        whole = whole.plus(span)
    return whole


_RULES: tuple[Callable[[Seen], Finding | None], ...] = (
    _length,
    _broken,
    _miswired,
    _cut_short,
    _restart,
    _context,
    _slow,
    _loop,
)
_LOW = {"broken", "miswired", "restart", "context"}
"""Causes of an acceptance below the promise."""
