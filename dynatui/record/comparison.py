"""Compares two recordings, A and B, of the same prompts: how the speed and the texts of each method changed.

The load of the machine may have differed between the recordings, so each method's speed-ups over `ar` in the same
recording are compared.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

import msgspec

from decoder.analysis.interval import COVERAGE, Interval, compared_to_limit
from decoder.analysis.metrics import RunFold, compared_until, first_difference, fold
from decoder.analysis.speedup import Speedup, change
from decoder.errors import RecordingError
from decoder.events import Event
from dynatui.clean import clean_line
from dynatui.number_format import counted, short
from dynatui.result import aligned

CHANGED = 5
"""Exit code for `Comparison.changed`."""
Verdict: TypeAlias = Literal["slower", "faster", "cannot tell"]
_TEXT, _SAMPLED = ("target", "dtype", "temperature"), ("seed", "top_k", "top_p")
"""Recordings with equal values of these settings must have equal texts; `_SAMPLED` matters only if T is above 0."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Change of one method from A to B. Tokens per second are means over the texts that both recordings have."""

    texts: int
    tokens_per_second_a: float | None
    tokens_per_second_b: float | None
    ratio: float | None
    """Geometric mean of B / A over the texts: of speed-ups over `ar`, or if `ar` is missing, of tokens per second."""
    low: float | None
    high: float | None
    reason: str | None
    """Why there is no ratio, or no verdict."""
    verdict: Verdict
    compared_texts: int
    different_texts: int


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON output. The intervals of all methods hold simultaneously with a confidence of 95 %."""

    a: str
    b: str
    texts: int
    unpaired_a: int
    unpaired_b: int
    methods: dict[str, Change]

    @property
    def changed(self) -> bool:
        """Whether a method is clearly slower in B, or its text differs."""
        return any(each.verdict == "slower" or each.different_texts for each in self.methods.values())


Pair: TypeAlias = tuple[RunFold, RunFold]


def comparison(names: Sequence[str], first: Iterable[Sequence[Event]], second: Iterable[Sequence[Event]]) -> Comparison:
    """Pairs the runs of each prompt in their order and compares them. Raises RecordingError without a common prompt."""
    unpaired, pairs, others = dict[tuple[int, ...], list[RunFold]](), list[Pair](), 0
    for race in map(fold, first):
        unpaired.setdefault(_prompt(race), []).append(race)
    for race in map(fold, second):
        if waiting := unpaired.get(_prompt(race)):
            pairs.append((waiting.pop(0), race))
        else:
            others += 1
    if not pairs:
        raise RecordingError(f"{' and '.join(names)} have no prompt in common; record both with the same prompts")
    methods = [name for name in pairs[0][0].tallies if any(name in a.tallies and name in b.tallies for a, b in pairs)]
    judged = [name for name in methods if name != "ar"]
    coverage = 1 - (1 - COVERAGE) / max(1, len(judged))
    return Comparison(
        a=names[0],
        b=names[1],
        texts=len(pairs),
        unpaired_a=sum(map(len, unpaired.values())),
        unpaired_b=others,
        methods={name: _change(name, pairs, coverage) for name in methods},
    )


def _prompt(race: RunFold) -> tuple[int, ...]:
    return tuple(race.run.prompt_tokens) if race.run else ()


def _change(method: str, pairs: Iterable[Pair], coverage: float) -> Change:
    both = [(a, b) for a, b in pairs if method in a.tallies and method in b.tallies]
    beside_ar = method != "ar" and all("ar" in race.tallies for pair in both for race in pair)

    def speed(race: RunFold) -> Speedup:
        return race.speedup_of(method) if beside_ar else Speedup(race.figures()[method].tokens_per_second)

    found = change([(speed(a), speed(b)) for a, b in both], coverage)
    reason: str | None = found.reason
    if not beside_ar:
        reason = reason or "not judged: load of the machine would look the same"
    texts = [differs for pair in both if (differs := _differs(method, *pair)) is not None]
    return Change(
        texts=len(both),
        tokens_per_second_a=_mean(a.figures()[method].tokens_per_second for a, _ in both),
        tokens_per_second_b=_mean(b.figures()[method].tokens_per_second for _, b in both),
        ratio=found.value,
        low=found.low,
        high=found.high,
        reason=reason,
        verdict=_verdict(found) if beside_ar else "cannot tell",
        compared_texts=len(texts),
        different_texts=sum(texts),
    )


def _verdict(found: Speedup) -> Verdict:
    if found.value is None:
        return "cannot tell"
    faster = compared_to_limit(Interval(value=found.value, low=found.low, high=found.high))
    return "faster" if faster == "holds" else "slower" if faster == "does not hold" else "cannot tell"


def _differs(method: str, a: RunFold, b: RunFold) -> bool | None:
    """Whether a method's texts differ; None if they need not be equal."""
    if a.run is None or b.run is None:
        return None
    names = (*_TEXT, *_SAMPLED) if a.sampled or b.sampled else _TEXT
    limits = [compared_until(run, method, sampled=race.sampled) for race, run in ((a, a.run), (b, b.run))]
    known = [limit for limit in limits if limit is not None]
    if len(known) < len(limits) or any(getattr(a.run, name) != getattr(b.run, name) for name in names):
        return None
    place = first_difference(a.tallies[method].tokens, b.tallies[method].tokens)
    return place is not None and place < min(known)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def told(found: Comparison) -> Iterator[str]:
    yield clean_line(f"A {found.a}, B {found.b}: {counted(found.texts, 'text')} of the same prompt")
    if found.unpaired_a or found.unpaired_b:
        yield f"left out, since the other recording lacks them: {found.unpaired_a} of A, {found.unpaired_b} of B"
    rows = [["method", "A tokens/s", "B tokens/s", "B / A", "verdict", "other texts"]]
    for method, each in found.methods.items():
        speeds = (short(each.tokens_per_second_a, 1), short(each.tokens_per_second_b, 1))
        ends = "" if each.low is None or each.high is None else f" ({short(each.low)} to {short(each.high)})"
        texts = f"{each.different_texts} of {each.compared_texts}" if each.compared_texts else "-"
        rows.append([clean_line(method), *speeds, f"{short(each.ratio)}{ends}", each.reason or each.verdict, texts])
    yield from aligned(rows)
    yield "B / A is the ratio of the speed-ups over ar, so that the load of the machine cancels out"
