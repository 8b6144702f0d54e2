"""What limits the methods of many runs, each finding once with all that it holds for.

Findings are as the verdict on each method of each run has them. Pure; knows neither recordings nor where it is told.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from decoder.analysis.bottleneck import Bottleneck, is_hopeless, limited, main_limit, of_method, remedies, repeated
from decoder.analysis.limit_words import NO_LIMIT
from decoder.analysis.metrics import Race, differs_by_design


@dataclass(frozen=True)
class Case:
    """A method of a run."""

    run: int
    """From 1."""
    method: str
    bottleneck: Bottleneck | None
    """Its bottleneck; None where figures are missing."""
    speedup: float | None
    """Over plain decoding."""
    compared: bool
    """Whether its text was compared with that of plain decoding."""
    difference: int | None
    """The first token that differs."""
    by_design: bool
    """Whether it may."""


Cases: TypeAlias = tuple[Case, ...]


@dataclass(frozen=True)
class Finding:
    """A sentence that holds for some methods of some runs."""

    cases: Cases
    claim: str
    helps: str = ""
    """The remedy for all of them."""
    then: tuple[tuple[str, Cases], ...] = ()
    """Their next remedies, each with the cases that it would help."""


def cases(race: Race, run: int) -> Iterator[Case]:
    """The methods of a run, plain decoding among them."""
    for method, figures in race.figures().items():
        bottleneck = of_method(race, method)
        yield Case(
            run,
            method,
            bottleneck,
            bottleneck.speedup if bottleneck else figures.speedup,
            compared=method != "ar" and (figures.identical_to_ar is not None or figures.first_difference is not None),
            difference=figures.first_difference,
            by_design=differs_by_design(figures),
        )


def findings(cases: Iterable[Case]) -> Iterator[Finding]:
    """What limits the methods, the most frequent limit first; then which texts mislead."""
    told = [(case, case.bottleneck) for case in cases if case.bottleneck]
    by_limit = grouped((case, (main_limit(limits), is_hopeless(limits))) for case, limits in told)
    for (limit, _), group in sorted(by_limit.items(), key=lambda item: -len(item[1])):
        known = _limits(group)
        first, *_ = (*remedies(known[0]), "")
        yield Finding(
            group,
            NO_LIMIT.rstrip(".") if limit is None else limited(known, limit),
            first,
            tuple(grouped(_next(group)).items()),
        )
    looping = tuple(case for case, limits in told if limits.repeats)
    if looping:
        yield Finding(looping, repeated(_limits(looping)).rstrip("."))


def _next(group: Cases) -> Iterator[tuple[Case, str]]:
    """The second remedy of each case that has one."""
    for case in group:
        for remedy in remedies(case.bottleneck)[1:] if case.bottleneck else ():
            yield case, remedy


def _limits(group: Cases) -> Sequence[Bottleneck]:
    return [case.bottleneck for case in group if case.bottleneck]


Key = TypeVar("Key", bound=Hashable)


def grouped(keyed: Iterable[tuple[Case, Key]]) -> Mapping[Key, Cases]:
    """Cases by their keys, both in the order in which they come."""
    groups = dict[Key, list[Case]]()
    for case, key in keyed:
        groups.setdefault(key, []).append(case)
    return {key: tuple(group) for key, group in groups.items()}
