"""The paper's own numbers: four versions of its text, v1 the earliest, and its authors' published logs.

`published.csv` has a number a line. Numbers in tables take precedence over those in figures, and those over numbers in
logs; later versions over earlier ones. Knows no measurement.
"""

import csv
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec

HARDWARE = "one NVIDIA A100, Pythia-2.8B with Pythia-70M, float16"
"""The authors' hardware; the versions say a single NVIDIA GPU, the source of the text names it."""
WIKITEXT, PG19 = "WikiText-2", "PG-19"
LENGTH = 1500
"""T of the main results, in new tokens."""
MOST: Mapping[str, int] = {WIKITEXT: 800, PG19: 1000}
"""L_max of the main results, in characters."""
EARLIER_LENGTH = 500
"""T of v1, the only version with some of the rows."""

AR, HF = "AR", "HF assisted"
PHASE_1, PHASE_2, DYNATREE = "Phase 1", "Phase 2", "DynaTree"
LINEAR = tuple(f"Linear K{k}" for k in range(4, 9))
FIXED_BACKBONE = "Fixed D5B2"
"""First row of the ablation."""
FIXED = (FIXED_BACKBONE, "Fixed D6B2", "Fixed D7B2", "Fixed D8B3")
"""Rows of fixed trees, which v1 calls DynaTree."""

GAIN, MEMORY_GAIN = "gain", "memory_gain"
"""Figures of the paper only: % of tokens/s over the fixed tree of the ablation, % of peak memory over AR."""
LOGS = "logs"
"""Source of numbers that no version of the paper has."""
DOUBTS: Mapping[str, str] = {
    "shared-gpu": "measured while others used the GPU; alone, AR has 131 to 138 tokens/s",
    "shared-base": "relative to an AR that was measured while others used the GPU",
    "one-prefill": "one prefill of the target alone, before the text, for every method: differences are of run order",
    "not-acceptance": "committed tokens with the bonus over rounds x (D0 + 2): can exceed 100 %",
    "with-bonus": "mean over prompts of tokens over rounds, the bonus included; the text says before the bonus",
    "called-d8b3": "the row is called D8B3 there; its rounds and acceptance are those of D5B2",
    "one-prompt": "of one prompt; behind the stroke, the logs over prompts",
    "never-evicts": "the cache evicts nothing at this length: this is linear drafting",
    "no-cap": "L_max is not stated",
    "v1-table-1": "AR is 119.4 tokens/s in the same table, 133.2 for the same setting in table 5",
    "other-memory": "in v1 drafting costs .45 %, from v2 on 3.3 %",
    "both-sets": "the mean of both data sets",
    "cut-prompts": "prompts of speculative methods were cut to 48 tokens, those of AR were not",
    "two-prompts": "two prompts, no warm-up, N_max 128, AR at 108.2 tokens/s",
    "fallback-prompt": "one prompt ten times, not WikiText-2, AR at 113.9 tokens/s; behind the stroke, on WikiText-2",
    "deeper-on-pg19": "the authors let its trees grow to D_max=9 there, as phase 3 D_max=9 does here",
}
"""Reasons against relying on a number, by their names in the file."""


class PublishedNumber(msgspec.Struct, frozen=True, kw_only=True):
    """Number of the paper, in the unit of the figure that it stands beside."""

    value: float
    std: float | None
    """Standard deviation over prompts; None where the paper has none."""
    again: float | None
    """Number of another run of the authors; None where there is none."""
    length: int
    """T: new tokens."""
    most: int
    """L_max: characters of the longest prompt."""
    source: str
    """Version with table or figure, or the logs."""
    doubt: str | None
    """Reason against relying on it; None where there is none."""


class Key(NamedTuple):
    """Key of a published number."""

    row: str
    """Row of the paper, or a setting of its sweeps as named by `fixed_row` and the functions after it."""
    data_set: str
    figure: str
    """Key of `report.FIGURE_KEYS`, or `GAIN` or `MEMORY_GAIN`."""
    length: int
    most: int


@cache
def numbers() -> Mapping[Key, PublishedNumber]:
    """All published numbers."""
    lines = files(__package__).joinpath("published.csv").read_text(encoding="utf-8").splitlines()
    return dict(map(_read, csv.DictReader(lines)))


def at(row: str | None, data_set: str | None, figure: str, length: int, most: int) -> PublishedNumber | None:
    """The paper's number at exactly this setting; None where it has none."""
    return numbers().get(Key(row or "", data_set or "", figure, length, most))


def usual(row: str | None, data_set: str | None, figure: str) -> PublishedNumber | None:
    """The paper's number at the setting of its main results, else at that of v1; None where it has none."""
    most = MOST.get(data_set or "", 0)
    return at(row, data_set, figure, LENGTH, most) or at(row, data_set, figure, EARLIER_LENGTH, most)


def fixed_row(depth: int, branching: int, tau: float) -> str:
    """Row of a setting of the sweep of fixed trees."""
    return f"Fixed D={depth} B={branching} tau={tau:g}"


def thresholds_row(tau_h: float, tau_l: float) -> str:
    """Row of a setting of the sweep of thresholds."""
    return f"tau_h={tau_h:g} tau_l={tau_l:g}"


def breadth_row(b_min: int, b_max: int) -> str:
    """Row of a setting of the sweep of breadths."""
    return f"B_min={b_min} B_max={b_max}"


def depth_row(d0: float, d_max: int) -> str:
    """Row of a setting of the sweep of depths."""
    return f"D0={d0:g} D_max={d_max}"


def _read(line: Mapping[str, Any]) -> tuple[Key, PublishedNumber]:
    key = Key(line["row"], line["data_set"], line["figure"], int(line["length"]), int(line["most"]))
    given = {name: value or None for name, value in line.items()} | {"doubt": _doubt(line["doubt"])}
    return key, msgspec.convert(given, PublishedNumber, strict=False)


def _doubt(names: str) -> str | None:
    """Reasons against relying on a number, from names with blanks between them; None where there is none."""
    return "; ".join(DOUBTS[name] for name in names.split()) or None
