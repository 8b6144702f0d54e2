"""Findings about the bottlenecks of many runs. Each finding is stated once, with all cases to which it applies; a case
is a method of a run.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from decoder.analysis.bottleneck import (
    NO_LIMIT,
    Bottleneck,
    is_hopeless,
    limited,
    main_limit,
    of_method,
    remedies,
    repeated,
)
from decoder.analysis.metrics import RunFold, differs_by_design
from decoder.events import Reason


@dataclass(frozen=True)
class MethodCase:
    """A method of a run: its bottleneck, its speed-up, and how its text differs from the text of plain decoding."""

    run: int
    """Number of the run, from 1."""
    method: str
    bottleneck: Bottleneck | None
    speedup: float | None
    """Speed relative to plain decoding; None if unknown."""
    compared: bool
    """Whether the text was compared with the text of plain decoding."""
    difference: int | None
    """Index of the first token that differs from the text of plain decoding; None if no token differs."""
    by_design: bool
    """Whether the difference is allowed by the method's design."""
    reason: Reason | None = None
    """Why the speed-up is unknown; None if the speed-up is known, or if plain decoding did not take part in the run."""


Cases: TypeAlias = tuple[MethodCase, ...]


@dataclass(frozen=True)
class Finding:
    """A claim that holds for some methods of some runs."""

    cases: Cases
    claim: str
    helps: str = ""
    """Remedy that would help in all of `cases`; empty if no remedy is known."""
    then: tuple[tuple[str, Cases], ...] = ()
    """Further remedies, each with the cases that it would help."""


def cases(race: RunFold, run: int) -> Iterator[MethodCase]:
    """One case for each method of a run, plain decoding included."""
    for method, figures in race.figures().items():
        bottleneck = of_method(race, method)
        yield MethodCase(
            run,
            method,
            bottleneck,
            figures.speedup,
            compared=method != "ar" and (figures.identical_to_ar is not None or figures.first_difference is not None),
            difference=figures.first_difference,
            by_design=differs_by_design(figures),
            reason=figures.speedup_reason,
        )


def findings(cases: Iterable[MethodCase]) -> Iterator[Finding]:
    """One finding for each main limit, the most frequent first, then one about repetitive texts if there are any."""
    known_cases = [(case, case.bottleneck) for case in cases if case.bottleneck]
    by_limit = grouped((case, (main_limit(limits), is_hopeless(limits))) for case, limits in known_cases)
    for (limit, _), group in sorted(by_limit.items(), key=lambda item: -len(item[1])):
        limits_of_group = _limits(group)
        first, *_ = (*remedies(limits_of_group[0]), "")
        known = [(case, case.bottleneck) for case in group if case.bottleneck]
        second = ((case, remedy) for case, limits in known for remedy in remedies(limits)[1:])
        yield Finding(
            group,
            NO_LIMIT.rstrip(".") if limit is None else limited(limits_of_group, limit),
            first,
            tuple(grouped(second).items()),
        )
    looping = tuple(case for case, limits in known_cases if limits.repeats)
    if looping:
        yield Finding(looping, repeated(_limits(looping)).rstrip("."))


def _limits(group: Cases) -> Sequence[Bottleneck]:
    return [case.bottleneck for case in group if case.bottleneck]


Key = TypeVar("Key", bound=Hashable)


def grouped(keyed: Iterable[tuple[MethodCase, Key]]) -> Mapping[Key, Cases]:
    """Cases grouped by key; keys and cases keep their order."""
    groups = dict[Key, list[MethodCase]]()
    for case, key in keyed:
        groups.setdefault(key, []).append(case)
    return {key: tuple(group) for key, group in groups.items()}
