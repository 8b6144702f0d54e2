"""The DynaTree paper's experiments, repeated with any pair of models. A lane is a decoding method with its parameters.

In the order of the data flow: `experiments` plans lanes, prompts and text lengths; `job` decodes with all lanes in turn
and writes `records`; `report` computes means over prompts. `tables`, `figures` and `claims` compare the report with the
paper, and `write` makes files of them.

This module has the paper's own numbers, from its versions v1 to v4 and from the authors' published logs; none of them
was measured in this project. `published.csv` has one number per line. If sources differ, tables take precedence over
figures, figures over logs, and later versions over earlier ones. `doubts.csv` has reasons not to rely on some numbers,
and `corrections.csv` errors in the paper, the most important first.
"""

import csv
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from string import ascii_lowercase

import msgspec

from dynatui.lab.tables import Printed

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


class PublishedNumber(Printed, frozen=True, kw_only=True):
    """Number in the unit of the measured figure with the same key; `source` is a table or figure of a version of the
    paper, or `LOGS`.
    """

    length: int
    """Text length T, in new tokens."""
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


def footnotes(remarks: Iterable[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Mark of each distinct remark (a letter, or a number after z; empty for the empty remark), and the notes under a
    table that explain the marks.
    """
    distinct = list(dict.fromkeys(filter(None, remarks)))
    known = dict(zip(distinct, (*ascii_lowercase, *map(str, range(len(distinct)))), strict=False))
    return known | {"": ""}, tuple(f"[{mark}] {remark}." for remark, mark in known.items())
