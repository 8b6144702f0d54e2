"""The paper's own numbers, from the four versions of the paper, v1 to v4, and from the authors' published logs.

`published.csv` has one number per line. If sources differ, tables take precedence over figures, figures over logs, and
later versions over earlier versions. `doubts.csv` has reasons not to rely on some of these numbers. `corrections.csv`
has errors in the paper, the most important first. None of the numbers was measured in this project.
"""

import csv
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from string import ascii_lowercase

import msgspec

HARDWARE = "one NVIDIA A100, Pythia-2.8B with Pythia-70M, float16"
"""The authors' hardware and models; the paper says "a single NVIDIA GPU", and only its source files name the GPU."""
WIKITEXT, PG19 = "WikiText-2", "PG-19"
LENGTH = 1500
"""Text length T of the main results, in new tokens."""
MOST: Mapping[str, int] = {WIKITEXT: 800, PG19: 1000}
"""Maximum prompt length L_max of the main results, in characters, by data set."""
EARLIER_LENGTH = 500
"""Text length T of version v1, in new tokens; some rows are only in that version."""

AR, HF = "AR", "HF assisted"
PHASE_1, PHASE_2, DYNATREE = "Phase 1", "Phase 2", "DynaTree"
LINEAR = tuple(f"Linear K{k}" for k in range(4, 9))
FIXED_BACKBONE = "Fixed D5B2"
"""Fixed tree in the first row of the ablation; the later rows add rules to this tree."""
FIXED = (FIXED_BACKBONE, "Fixed D6B2", "Fixed D7B2", "Fixed D8B3")
"""Rows of fixed trees; in v1, these rows are labelled DynaTree."""
LOGS = "logs"
"""Source of numbers that are only in the authors' logs, and in no version of the paper."""


@cache
def lines_of(name: str) -> tuple[dict[str, str], ...]:
    return tuple(csv.DictReader(files(__package__).joinpath(name).read_text(encoding="utf-8").splitlines()))


DOUBTS: Mapping[str, str] = {line["name"]: line["says"] for line in lines_of("doubts.csv")}
"""Reasons not to rely on a published number, by the short names that `published.csv` uses."""


class PublishedNumber(msgspec.Struct, frozen=True, kw_only=True):
    """Number published by the paper or its authors' logs, in the unit of the measured figure with the same key."""

    value: float
    std: float | None
    again: float | None
    """The same number from another run of the authors; None if there is no other run."""
    length: int
    """Text length T, in new tokens."""
    source: str
    """Version of the paper and its table or figure, or `LOGS`."""
    doubt: str
    """Reasons not to rely on the number, if any."""

    def remark(self, usual_length: int | None) -> str:
        """Caveats: doubts, a source outside of the paper, and T if it differs from a given `usual_length`."""
        length = f"at T={self.length}" if usual_length not in (None, self.length) else None
        from_logs = "from the authors' logs, not in any version of the paper" if self.source == LOGS else None
        return "; ".join(filter(None, (length, from_logs, self.doubt)))


@cache
def numbers() -> Mapping[tuple[str, ...], PublishedNumber]:
    """Published numbers by (row of a table of the paper or setting of a sweep, data set, figure, T, L_max)."""
    found = {}
    for line in lines_of("published.csv"):
        doubt = "; ".join(DOUBTS[name] for name in line["doubt"].split())
        given = {name: value or None for name, value in line.items()} | {"doubt": doubt}
        key = tuple(line[name] for name in ("row", "data_set", "figure", "length", "most"))
        found[key] = msgspec.convert(given, PublishedNumber, strict=False)
    return found


def at(row: str | None, data_set: str | None, figure: str, length: int, most: int) -> PublishedNumber | None:
    """Published number at exactly this setting, if any."""
    return numbers().get((row or "", data_set or "", figure, str(length), str(most)))


def usual(row: str | None, data_set: str | None, figure: str) -> PublishedNumber | None:
    """Published number at the setting of the main results, or else at the setting of v1, if any."""
    most = MOST.get(data_set or "", 0)
    return at(row, data_set, figure, LENGTH, most) or at(row, data_set, figure, EARLIER_LENGTH, most)


def marks(remarks: Iterable[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Mark of each distinct remark (a letter, or a number after z; empty for the empty remark), and the notes under a
    table that explain the marks.
    """
    distinct = list(dict.fromkeys(filter(None, remarks)))
    known = dict(zip(distinct, (*ascii_lowercase, *map(str, range(len(distinct)))), strict=False))
    return known | {"": ""}, tuple(f"[{mark}] {remark}." for remark, mark in known.items())
