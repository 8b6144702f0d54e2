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
    found: Bottleneck | None
    """What limits it; None where nothing can be said."""
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
    said: str
    helps: str = ""
    """What would help all of them."""
    then: tuple[tuple[str, Cases], ...] = ()
    """What would help them next, each with those that it would help."""


def cases(race: Race, run: int) -> Iterator[Case]:
    """The methods of a run, plain decoding among them."""
    for method, figures in race.figures().items():
        found = of_method(race, method)
        yield Case(
            run,
            method,
            found,
            found.speedup if found else figures.speedup,
            compared=method != "ar" and (figures.identical_to_ar is not None or figures.first_difference is not None),
            difference=figures.first_difference,
            by_design=differs_by_design(figures),
        )


def findings(found: Iterable[Case]) -> Iterator[Finding]:
    """What limits the methods, the most frequent limit first; then which texts mislead."""
    told = [(case, case.found) for case in found if case.found]
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
        for remedy in remedies(case.found)[1:] if case.found else ():
            yield case, remedy


def _limits(group: Cases) -> Sequence[Bottleneck]:
    return [case.found for case in group if case.found]


Key = TypeVar("Key", bound=Hashable)


def grouped(keyed: Iterable[tuple[Case, Key]]) -> Mapping[Key, Cases]:
    """Cases by their keys, both in the order in which they come."""
    groups = dict[Key, list[Case]]()
    for case, key in keyed:
        groups.setdefault(key, []).append(case)
    return {key: tuple(group) for key, group in groups.items()}
