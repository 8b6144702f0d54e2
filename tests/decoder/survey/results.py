"""The survey's results as files: the JSON that is kept, and the page made from it."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from decoder.system.whole_files import write_whole
from dynatui.lab.tables import Column, Table, section
from tests.decoder.survey.trial import LOOKUP, METHODS, TOKENS, Trial

ROOT = Path(__file__).parents[3]
KEPT, PAGE = ROOT / "benchmarks" / "models.json", ROOT / "docs" / "models.md"
GREEDY, SAMPLED = 0.0, 0.7
ALL = (*METHODS, LOOKUP)
ABOUT = f"""# Models

Every causal language model of transformers {{version}}, as a tiny random model: two to four layers, windows of 8
tokens where the family has windows, float32, on a CPU. Each method ({", ".join(ALL[:-1])}, and {LOOKUP}, which is
`auto` without a draft model) continues a prompt of 20 tokens by {TOKENS} tokens, and its text is compared with that of
transformers' `generate`: greedy, and at temperature {SAMPLED} with the same Gumbel noise added to `generate`'s scores.
{{counts}}

The route is the code that computes the target: native (without transformers' module), module, states (a module whose
layers keep states), or paths (a module that takes no tree mask, see [Running](running.md#models-and-dtypes)). The
largest difference is that of a tree node's logits from those of plain text, over the largest logit.

`python -m tests.decoder.survey` measures the families and writes this page; `benchmarks/models.json` has each family's
own result."""


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """The kept results."""

    transformers: str
    trials: tuple[Trial, ...]


def write(survey: Survey, kept: Path = KEPT, page: Path = PAGE) -> None:
    """Writes the JSON, one line per trial, and the page."""
    trials = ",\n".join(msgspec.json.encode(trial).decode() for trial in survey.trials)
    version = msgspec.json.encode(survey.transformers).decode()
    write_whole(kept, f'{{"transformers":{version},"trials":[\n{trials}\n]}}\n'.encode())
    write_whole(page, markdown(survey).encode())


def read(kept: Path = KEPT) -> Survey:
    """The kept results."""
    return msgspec.json.decode(kept.read_bytes(), type=Survey)


def replaced(survey: Survey, trial: Trial) -> Survey:
    """The results with this one: greedy trials before sampled ones, each by family."""
    key = trial.temperature, trial.family
    others = {(other.temperature, other.family): other for other in survey.trials}
    return Survey(transformers=survey.transformers, trials=tuple(dict(sorted({**others, key: trial}.items())).values()))


def markdown(survey: Survey) -> str:
    """The page in Markdown."""
    greedy = {trial.family: trial for trial in survey.trials if trial.temperature == GREEDY}
    sampled = {trial.family: trial for trial in survey.trials if trial.temperature == SAMPLED}
    groups = {title: [trial for trial in greedy.values() if fits(trial)] for title, fits in GROUPS.items()}
    counts = ", ".join(f"{len(trials)} {title.lower()}" for title, trials in groups.items() if trials)
    about = ABOUT.format(version=survey.transformers, counts=f"Of {len(greedy)} families: {counts}.")
    tables = (section(table(title, trials, sampled)) for title, trials in groups.items() if trials)
    return "\n\n".join([about, *(part for parts in tables for part in parts if part)]) + "\n"


GROUPS: Mapping[str, Callable[[Trial], bool]] = {
    "Exact": lambda trial: trial.exact == ALL,
    "Different text": lambda trial: bool(trial.wrong),
    "No result": lambda trial: bool(trial.ended),
    "Refused": lambda trial: bool(trial.refused),
    "Not built": lambda trial: bool(trial.not_built),
}
"""Sections of the page, each with a test for its greedy trials."""


def table(title: str, trials: Sequence[Trial], sampled: Mapping[str, Trial]) -> Table:
    """A section's greedy trials: families with equal results are one row."""
    texts = bool(trials[0].route)
    rows: dict[tuple[str, ...], list[Trial]] = {}
    for trial in trials:
        results = (trial.route, result(trial), result(sampled.get(trial.family))) if texts else (reason(trial),)
        rows.setdefault(results, []).append(trial)
    titles = ("route", "greedy", f"T = {SAMPLED}", "largest difference") if texts else ("reason",)
    return Table(
        title=title,
        columns=tuple(Column(one) for one in (*titles, "families")),
        rows=tuple(
            (*results, *([difference(alike)] if texts else []), ", ".join(trial.family for trial in alike))
            for results, alike in rows.items()
        ),
    )


def result(trial: Trial | None) -> str:
    """The result of a trial in words."""
    if trial is None:
        return "not measured"
    wrong = (f"{name} {fault}" for name, fault in trial.wrong.items())
    return trial.refused or trial.not_built or trial.ended or "; ".join(wrong) or "exact"


def reason(trial: Trial) -> str:
    """Why a family has no text, without its name, its numbers, and the advice that ends refusals."""
    said = result(trial).removeprefix(trial.family).removeprefix(",").partition("; choose")[0]
    return re.sub(r" \(difference .*?\)", "", said).strip()


def difference(trials: Sequence[Trial]) -> str:
    """The largest of the measured differences."""
    measured = [trial.difference for trial in trials if trial.difference is not None]
    return f"{max(measured):.0e}" if measured else ""
