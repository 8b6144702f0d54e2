"""Wordings of the limits of a method's speed and of the remedies."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Limit: TypeAlias = Literal["agreement", "draft", "verification", "host"]
NO_LIMIT = "None of the known limits applies."


class Span(tuple[float, ...]):
    """Formatted as the range from the least to the largest number."""

    __slots__ = ()

    def __format__(self, form: str) -> str:
        return " to ".join(dict.fromkeys(format(end, form) for end in (min(self), max(self))))


@dataclass(frozen=True)
class Remedy:
    """Wordings from the longest to the shortest."""

    whole: str
    helps: str
    hint: str


@dataclass(frozen=True)
class Words:
    clause: str
    assumption: str
    line: str
    brief: str
    remedy: Remedy
    settled: Remedy
    """The remedy if trees of another size would not be faster."""


WITHOUT_HOPE = Remedy(
    "another draft (dynatui tune --drafts ranks candidates); with this draft, --methods ar",
    "another draft, or --methods ar,",
    "another draft",
)
_BETTER_DRAFT = Remedy(
    "a draft that agrees more often (dynatui tune --drafts ranks candidates)",
    "a better draft",
    "better draft",
)
_FASTER_PATH = Remedy(
    "a faster decoding path if there is one (see dynatui doctor), or larger models, with which this time is a smaller "
    "share of a round",
    "a faster decoding path or larger models",
    "faster path",
)
WORDS: Mapping[Limit, Words] = {
    "agreement": Words(
        clause=(
            "the draft disagrees with the target: {right:.0%} of the {levels:.1f} levels drafted per round are accepted"
        ),
        assumption="if every guess held",
        line="{right:.0%} of {levels:.2g} drafted levels accepted",
        brief="{right:.0%} of {levels:.2g} levels accepted",
        remedy=Remedy(
            "a draft that agrees more often (dynatui tune --drafts ranks candidates), or smaller trees",
            "a better draft or smaller trees",
            "better draft",
        ),
        settled=_BETTER_DRAFT,
    ),
    "draft": Words(
        clause="drafting takes {draft:.0%} of a round",
        assumption="if it took no time",
        line="drafting takes {draft:.0%} of a round",
        brief="drafting takes {draft:.0%}",
        remedy=Remedy(
            "a smaller draft, or shallower trees, since each level takes one pass of the draft",
            "a smaller draft or shallower trees",
            "shallower trees",
        ),
        settled=Remedy("a smaller draft", "a smaller draft", "smaller draft"),
    ),
    "verification": Words(
        clause="verification time grows with rows: {rows:.1f} rows take {growth:.2f} times as long as one row",
        assumption="if they took as long as one",
        line="verification grows with rows: {rows:.3g} rows take {growth:.2g}x as long as one",
        brief="{rows:.3g} rows cost {growth:.2g}x one row",
        remedy=Remedy("smaller trees, with fewer nodes a round", "smaller trees", "smaller trees"),
        settled=_BETTER_DRAFT,
    ),
    "host": Words(
        clause="{host:.0%} of a round is spent neither on drafting nor on verification",
        assumption="without that time",
        line="{host:.0%} of a round is neither drafting nor verification",
        brief="{host:.0%} neither drafting nor verification",
        remedy=_FASTER_PATH,
        settled=_FASTER_PATH,
    ),
}
"""Names in braces are replaced by figures."""
