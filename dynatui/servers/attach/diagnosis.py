"""Finds faults in a server's speculative decoding, from its figures and, if given, a promise: a profile's prediction.

A share p1 of n1 rounds and a share p2 of n2 rounds count as different if the evidence

    n1 KL(p1, p) + n2 KL(p2, p) - log(4 sqrt(n1 n2)) with p = (n1 p1 + n2 p2) / (n1 + n2)

is at least log(comparisons / ERROR). The evidence is a lower bound on the logarithm of a product of two mixtures of
likelihood ratios (Krichevsky and Trofimov 1981). If the shares are equal, this product is a martingale as rounds are
added. So (Ville 1939) `ERROR` bounds the probability of a false report over all polls of a session, however long, with
the sampling error of the profile included. Rounds of one text are correlated, so n is the number of rounds / design
effect, which follows from the profile's interval over prompts.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from statistics import fmean

from dynatui.number_format import count, percent, short
from dynatui.servers.attach.course import Course, Span, load_class
from dynatui.servers.attach.events import Finding, Promise, PromisedChain
from dynatui.servers.attach.servers import Kind

ERROR = 0.01
"""Largest probability that a session reports a difference from the promise although there is none."""
ROUNDS = 100
"""Least number of rounds for any finding except `off`."""
UNPROMISED_ROUNDS = 300
"""Least number of rounds for a finding about acceptance without a promise."""
TOKENS = 200
"""Speculation counts as off if the server has generated at least this many tokens without any draft."""
UNKNOWN_EFFECT = 10.0
"""Design effect if no profile determines it."""
NOTHING, LITTLE = 0.05, 0.1
"""A draft is broken if its acceptance at position 1 is below `NOTHING`, or below `LITTLE` * promised acceptance."""
RIGHT, MISWIRED = 0.7, 0.2
"""A draft is miswired if its acceptance at position 1 is at least `RIGHT` * promise, but its conditional acceptance at
position 2 is below `MISWIRED` * promise."""
USUAL = 0.5, 0.25
"""Acceptance at positions 1 and 2 that is expected without a promise."""
MORE = 0.5
"""A load is reported if its rounds draft on average more than this number of tokens above the advised number."""
FULL, CUT_SHORT = 0.98, 0.8
"""Promised drafts count as all of one length if they have at least `FULL` * K tokens on average; drafts count as cut
short if they have fewer than `CUT_SHORT` * expected tokens on average."""
FALL, GROWTH, SAME_LOAD = 0.1, 1.2, 1.5
"""Least reported fall of L-bar, as a share; least growth factor of the KV cache per request to explain it by longer
texts; largest ratio of two loads that count as equal."""
LOOP, FAR_ABOVE = 0.97, 0.05
"""Texts count as repeating if acceptance at the last position is at least `LOOP` and at least promise + `FAR_ABOVE`."""
POLLS, SLOWER = 20, 0.97
"""Least number of step times for a comparison of speeds, and speed-up below which speculation counts as slow."""


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
        """Largest number of tokens that a round drafts; if the server does not report it, the advised number."""
        return self.course.k or self.advised

    @property
    def advised(self) -> int | None:
        """Largest advised number of drafted tokens over all loads."""
        return max((k for _, _, k in self.promise.advised), default=None) if self.promise else None

    @property
    def chain(self) -> PromisedChain | None:
        """The promise for chains of `k` tokens of the deployed draft."""
        if self.promise is None or not self.k:
            return None
        chains = self.promise.drafts[self.promise.draft]
        return chains[min(self.k, len(chains)) - 1]

    @property
    def evidence(self) -> float:
        """Evidence (see the module) from which two shares count as different."""
        comparisons = 3 + (self.k or len(self.life.accepted_at))
        return math.log(comparisons / ERROR)

    @property
    def varies(self) -> bool:
        """Whether promised drafts differ in length, as those of lookups do."""
        return self.chain is not None and self.chain.drafted < FULL * len(self.chain.rates)

    def advised_at(self, running: float) -> int | None:
        bands = self.promise.advised if self.promise else ()
        return next((k for least, most, k in bands if least <= round(running) <= most), None)

    def compared(self, position: int) -> tuple[float, float]:
        """(acceptance at a reported position, from 0, counted as in the profile; its number of rounds). If drafts are
        cut short, the largest acceptance that the counts permit is returned.
        """
        drafted = self.life.rounds if self.varies else self.life.surely_drafted(position)
        return min(1.0, self.life.accepted_at[position] / drafted) if drafted else 0.0, drafted

    @property
    def rates(self) -> tuple[float, ...]:
        """Promised acceptance by position; `USUAL` without a promise."""
        return self.chain.rates if self.chain else USUAL

    def promised(self, position: int) -> str:
        return f" (promised {percent(self.chain.rates[position])})" if self.chain else ""

    def surely_below(self, rate: float, rounds: float, promised: float) -> bool:
        """Whether a rate is significantly below the promise; without a promise, whether there are enough rounds."""
        if self.chain is None:
            return self.life.rounds >= UNPROMISED_ROUNDS
        evidence = differing(rate, rounds / self.chain.design_effect, promised, self.chain.rounds)
        return rate < promised and evidence >= self.evidence

    def below(self, position: int) -> bool:
        """Whether acceptance at a position, from 0, is significantly below the promise; False if either is unknown."""
        within = self.chain is not None and position < min(len(self.rates), len(self.life.rates))
        return within and self.surely_below(*self.compared(position), self.rates[position])

    def fell(self, before: Span, after: Span, windows: int = 1) -> bool:
        """Whether L-bar fell by at least `FALL`, and significantly; `windows`: number of such comparisons so far."""
        if not before.rounds or not after.rounds or after.length > (1 - FALL) * before.length:
            return False
        most = max(1.0, before.drafted_per_round, after.drafted_per_round, self.k or 1)
        effect = self.chain.design_effect if self.chain else UNKNOWN_EFFECT
        one, other = ((min(1.0, span.accepted_per_round / most), span.rounds / effect) for span in (before, after))
        return differing(*one, *other) >= self.evidence + 2 * math.log(windows) + math.log(math.pi**2 / 6)


def differing(one: float, rounds: float, other: float, other_rounds: float) -> float:
    """The evidence that two shares differ; see the module."""
    if min(rounds, other_rounds) < 1:
        return 0.0
    common = (rounds * one + other_rounds * other) / (rounds + other_rounds)
    ratio = rounds * _divergence(one, common) + other_rounds * _divergence(other, common)
    return ratio - math.log(4 * math.sqrt(rounds * other_rounds))


def _divergence(share: float, common: float) -> float:
    """KL divergence of two Bernoulli distributions."""
    parts = ((share, common), (1 - share, 1 - common))
    return sum(part * math.log(part / whole) for part, whole in parts if part > 0 and whole > 0)


def _off(seen: Seen) -> Finding | None:
    if seen.promise is None or seen.life.rounds or seen.life.generated < TOKENS:
        return None
    claim = f"speculation is off: {count(seen.life.generated)} tokens were generated, none was drafted"
    return Finding("off", claim, f"start the server with {seen.kind.speculation}")


def _length(seen: Seen) -> Finding | None:
    k, most = seen.course.k, seen.advised
    found = [(f"up to {k} tokens a round", most)] if k is not None and most is not None and k != most else []
    for span in seen.course.by_load.values():
        drafted, advised = span.drafted_per_round, seen.advised_at(span.timed_running)
        if advised is not None and span.rounds >= ROUNDS and drafted > advised + MORE:
            running = f"at {short(span.timed_running, 1)} running requests"
            found.append((f"{short(drafted, 1)} tokens a round {running}", advised))
    if not found:
        return None
    drafts, advised = found[0]
    remedy = f"set {seen.kind.chain} to {advised}" if advised else "run it without a draft: none pays"
    return Finding("length", f"the server drafts {drafts}, {advised} are advised", remedy)


def _broken(seen: Seen) -> Finding | None:
    """Judges acceptance at position 1 or, without counts by position, its upper bound: accepted tokens per round."""
    rate, rounds, promised = next(iter(seen.life.rates), seen.life.accepted_per_round), seen.life.rounds, seen.rates[0]
    if rate >= max(NOTHING, LITTLE * promised) or not seen.surely_below(rate, rounds, promised):
        return None
    first = f"{percent(rate)} of the first tokens of {count(rounds)} drafts are accepted{seen.promised(0)}"
    remedy = "check its weights (a quantised head?), its tokenizer, and that it was made for this target"
    return Finding("broken", f"the draft is broken: {first}", remedy)


def _miswired(seen: Seen) -> Finding | None:
    rates, promised = seen.life.rates, seen.rates
    if min(len(rates), len(promised)) < 2 or rates[0] < RIGHT * promised[0]:
        return None
    goes_on = rates[1] * promised[0] >= MISWIRED * rates[0] * promised[1]
    if goes_on or not seen.surely_below(*seen.compared(1), promised[1]):
        return None
    first, second = (percent(rates[place]) + seen.promised(place) for place in (0, 1))
    accepted = f"{first} of first tokens are accepted, {second} of second ones"
    remedy = "check the draft's inputs there (hidden states, positions, attention window); update the engine"
    return Finding("miswired", f"the draft fails from its second token on: {accepted}", remedy)


def _cut_short(seen: Seen) -> Finding | None:
    """Compares drafts with the promised mean length, limited by the advised number at any observed load."""
    drafted = seen.life.drafted_per_round
    if seen.chain is None or seen.varies or not drafted:
        return None
    advised = (seen.advised_at(span.timed_running) for span in seen.course.by_load.values())
    expected = min([seen.chain.drafted, *map(float, filter(None, advised))])
    if drafted >= CUT_SHORT * expected:
        return None
    claim = f"drafts are cut short: {short(drafted)} tokens a round, not {short(expected)}"
    remedy = "look for what shortens drafts: a least probability (p_min), a number by batch size, structured output"
    return Finding("cut short", claim, remedy)


def _restart(seen: Seen) -> Finding | None:
    before, now = seen.course.before, seen.life
    if before is None or before.rounds < ROUNDS or not seen.fell(before, now):
        return None
    claim = f"L-bar fell from {short(before.length)} to {short(now.length)} when the server restarted"
    return Finding(
        "restart", claim, "compare version, options and draft before and after; if it was an upgrade, go back"
    )


def _context(seen: Seen) -> Finding | None:
    pieces = seen.course.pieces
    quarter = len(pieces) // 4
    if not quarter:
        return None
    first, last = (reduce(Span.plus, part) for part in (pieces[:quarter], pieces[-quarter:]))
    low, high = sorted((first.mean_running, last.mean_running))
    grown = last.mean_cached / first.mean_cached if first.mean_cached else None
    if not low or high > SAME_LOAD * low or (grown is not None and grown < GROWTH):
        return None
    if not seen.fell(first, last, windows=1 + seen.life.rounds // first.rounds):
        return None
    fall = f"from {short(first.length)} to {short(last.length)} at {short(last.mean_running, 1)} running requests"
    cache = "" if grown is None else f", each with {short(grown)} times the KV cache"
    remedy = "texts grow longer: draft fewer tokens in them, or use a draft that was made for long contexts"
    return Finding("context", f"L-bar falls while the load stays: {fall}{cache}", remedy)


def _slow(seen: Seen) -> Finding | None:
    """Compares step times at the loads for which step times without drafts are known (`Promise.plain`); the variance
    of the mean logarithm of step times is that of independent readings.
    """
    if seen.promise is None or seen.below(0):
        return None
    plain = {load_class(point.running): point.step_s for point in seen.promise.plain if point.step_s}
    spans = [(span, plain[place]) for place, span in seen.course.by_load.items() if place in plain and span.timed]
    polls = sum(span.timed for span, _ in spans)
    if polls < POLLS:
        return None
    break_even = math.exp(sum(span.log_s - span.timed * math.log(plain_s) for span, plain_s in spans) / polls)
    squares = ((max(0.0, span.squared - span.log_s**2 / span.timed), span.timed) for span, _ in spans)
    error = sum(square * timed / max(1, timed - 1) for square, timed in squares) / polls**2
    least, length = 2 * error * (seen.evidence + 2 * math.log(polls)), seen.life.length
    if length / break_even >= SLOWER or math.log(break_even / length) ** 2 < least:
        return None
    running, even = short(fmean(span.timed_running for span, _ in spans), 1), short(break_even)
    cost = f"at {running} running requests a round takes as long as {even} steps without drafts"
    claim = (
        f"drafts are accepted and yet cost time: {cost}, so break-even is L-bar {even}, but L-bar is {short(length)}"
    )
    remedy = "draft fewer tokens at this load, or none; dynatui advise with both recordings tells how many"
    return Finding("slow", claim, remedy)


def _loop(seen: Seen) -> Finding | None:
    life, chain = seen.life, seen.chain
    rate = life.rates[-1] if life.rates else life.accepted_per_round / seen.k if seen.k else 0.0
    enough = life.rounds >= (ROUNDS if chain else UNPROMISED_ROUNDS)
    if not enough or rate < max(LOOP, (chain.rates[-1] if chain else 0.0) + FAR_ABOVE):
        return None
    claim = f"{percent(rate)} of drafts are accepted whole{seen.promised(-1)}: the texts seem to repeat themselves"
    inflating = "repetition inflates all figures, and so does the target as its own draft"
    return Finding("loop", claim, f"read an answer (--prompt TEXT): {inflating}")


def _below(seen: Seen) -> Finding | None:
    promise, chain, life, k = seen.promise, seen.chain, seen.life, seen.k
    if promise is None or chain is None or not k:
        return None
    first = next(filter(seen.below, range(len(life.rates))), None)
    if first is not None:
        position = f"{percent(seen.compared(first)[0])} at position {first + 1}{seen.promised(first)}, "
    elif not life.rates and seen.surely_below(life.accepted_per_round / k, life.rounds, sum(chain.rates) / k):
        position = ""
    else:
        return None
    other = next(_alike(seen, promise), None)
    named = f"the rates are those of {other} in the profile: deploy {promise.draft}"
    draft = named if other else "check that draft and target are the profiled ones"
    lengths = f"L-bar {short(life.length)} (promised {short(1 + sum(chain.rates))})"
    claim = f"acceptance is below the promise: {position}{lengths}"
    return Finding("below", claim, f"{draft}; otherwise the traffic differs from the profile's prompts")


def _alike(seen: Seen, promise: Promise) -> Iterator[str]:
    """Other drafts of the profile whose predicted acceptance does not differ significantly from the server's."""
    rates, rounds = seen.life.rates, seen.life.rounds
    for name, chains in promise.drafts.items():
        chain = chains[min(len(rates), len(chains)) - 1]
        pairs = zip(rates, chain.rates, strict=False)
        ratios = [differing(rate, rounds / chain.design_effect, promised, chain.rounds) for rate, promised in pairs]
        if name != promise.draft and ratios and max(ratios) < seen.evidence:
            yield name


_DIAGNOSES = (_off, _length, _broken, _miswired, _cut_short, _restart, _context, _slow, _loop, _below)


def findings(seen: Seen) -> tuple[Finding, ...]:
    """Findings by all diagnoses that apply; with fewer than `ROUNDS` rounds, only by the diagnosis `off`. An acceptance
    below the promise is not reported beside a finding that explains it.
    """
    judged = _DIAGNOSES if seen.life.rounds >= ROUNDS else _DIAGNOSES[:1]
    found = {finding.cause: finding for diagnosed in judged if (finding := diagnosed(seen))}
    if found.keys() & {"broken", "miswired", "restart", "context"}:
        found.pop("below", None)
    return tuple(found.values())


def unchecked(seen: Seen | None, reason: str) -> Finding | None:
    """A finding with the reason why the promise could not be checked; None if it could. `reason`: why no metrics page
    was read.
    """
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
    return Finding("unchecked", f"the promise was not checked: {because}", remedy)
