"""Statistics of measurements in a pandas frame. Each row is one text (prompt x lane x length x repeat, where a lane is
a measured setting); each column is a setting or a figure of the text. Callers name the columns.

Unknown figures are NaN and are left out. A series holds one figure, and its index has the level `prompt`. Figures
differ more between prompts than between repeats, so means are taken over repeats first; bootstraps resample prompts.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from decoder.analysis.interval import COVERAGE, DRAWS, Interval, bootstrap, quotient_ends

TEXT = ["prompt", "repeat"]
"""Columns that identify a text within a lane."""


class Median(Interval, frozen=True, kw_only=True):
    """Median over prompts with its bootstrap interval; the value's key in JSON files is "median"."""

    value: float = msgspec.field(name="median")


def frame(rows: Iterable[Mapping[str, Any]], figures: Iterable[str] = ()) -> pd.DataFrame:
    """Rows of a log as a frame; the columns `figures` are converted to float, so that None becomes NaN."""
    made = pd.DataFrame(list(rows))
    return made.astype(dict.fromkeys(made.columns.intersection(list(figures)), float))


def series(rows: pd.DataFrame, figure: str, **which: Any) -> pd.Series:
    """Known values of a figure, indexed by prompt and repeat, in rows whose columns equal `which` (`lane="ar"`)."""
    for column, value in which.items():
        rows = rows[rows[column] == value]
    return rows.set_index(TEXT)[figure].dropna()


def quotients(rows: pd.DataFrame, over: str, under: str, figure: str) -> pd.Series:
    """Figure of lane `over` divided by the figure of lane `under` on the same text, indexed by prompt and repeat."""
    above, below = (series(rows, figure, lane=lane) for lane in (over, under))
    return (above / below[below != 0]).dropna()


def by_prompt(values: pd.Series) -> pd.Series:
    """Mean over the repeats of each prompt, with prompts in ascending order."""
    return values.groupby(level="prompt").mean()


def mean(values: pd.Series, seed: int, *, draws: int = DRAWS) -> Interval | None:
    """Mean over prompts with standard deviation over prompts and bootstrap interval; None if there are no values.

    The interval has no ends if there is one prompt, and width 0 if all prompts have the same value.
    """
    above = by_prompt(values).to_numpy(np.float64)
    return _mean(above, np.ones_like(above), seed, draws) if len(above) else None


def spread_quotient(over: pd.Series, under: pd.Series, seed: int, *, coverage: float = COVERAGE) -> Interval | None:
    """Standard deviation of `over` divided by that of `under`, over their common prompts, with bootstrap interval.

    None if one of the standard deviations is 0, or if there are fewer than two common prompts.
    """
    both = pd.concat([by_prompt(over), by_prompt(under)], axis=1, join="inner").to_numpy(np.float64).T
    if both.shape[1] < 2 or not np.ptp(both, axis=1).all():
        return None

    def drawn_quotients(drawn: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
        samples = both[:, drawn[0]]
        above, below = samples[:, np.ptp(samples, axis=2).all(axis=0)].std(axis=2)
        quotient: NDArray[np.float64] = above / below
        return quotient

    low, high = bootstrap(drawn_quotients, [both.shape[1]], seed=seed, coverage=coverage)
    above, below = both.std(axis=1).tolist()
    return Interval(value=above / below, low=low, high=high)


def median(values: pd.Series, seed: int) -> Median | None:
    """Median over prompts of medians over repeats; the bootstrap resamples repeats within each prompt, then prompts.

    None if there are no values.
    """
    groups = [group.to_numpy(np.float64) for _, group in values.groupby(level="prompt")]
    if not groups:
        return None
    middle = float(np.median([np.median(group) for group in groups]))
    if len(values) == 1:
        return Median(value=middle, low=None, high=None)

    def medians(drawn: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
        *repeats, prompts = drawn
        of_prompts = np.stack([np.median(group[places], axis=1) for group, places in zip(groups, repeats, strict=True)])
        chosen = np.take_along_axis(of_prompts, prompts.reshape(len(groups), -1), axis=0)
        median_of_samples: NDArray[np.float64] = np.median(chosen, axis=0)
        return median_of_samples

    low, high = bootstrap(medians, [*map(len, groups), len(groups)], seed=seed)
    return Median(value=middle, low=low, high=high)


def estimate(groups: Iterable[Iterable[float]], seed: int) -> Median | None:
    """`median` of values in groups, with one group per prompt."""
    known = [(prompt, value) for prompt, group in enumerate(groups) for value in group]
    prompts, values = zip(*known, strict=True) if known else ((), ())
    return median(pd.Series(values, pd.Index(prompts, name="prompt"), "float64"), seed)


def means(
    rows: pd.DataFrame,
    by: Sequence[str],
    figures: Iterable[str],
    seed: int,
    ratios: Mapping[str, tuple[str, str]],
) -> dict[tuple[Any, ...], dict[str, Interval]]:
    """`mean` of each figure in each group of rows; a figure that is unknown in all texts of a group is left out.

    Args:
        rows: Frame of texts.
        by: Rows with equal values in these columns form a group; the values are the key of the group in the result.
        figures: Columns of figures.
        seed: Seed of the bootstrap.
        ratios: {name of a further figure: (dividend, divisor)}; the sums of these two columns over prompts are divided.
    """
    parts: dict[str, tuple[str, str | None]] = {**{name: (name, None) for name in figures}, **ratios}
    columns = list(dict.fromkeys(column for pair in parts.values() for column in pair if column))
    of_prompts = rows.groupby([*by, "prompt"], sort=False)[columns].mean()
    found: dict[tuple[Any, ...], dict[str, Interval]] = {}
    for key, group in of_prompts.groupby(level=list(by), sort=False):
        texts = dict(zip(columns, group.droplevel(list(by)).sort_index().to_numpy(np.float64).T, strict=True))
        found[key] = {}
        for name, (over, under) in parts.items():
            above, below = texts[over], np.ones(len(group)) if under is None else texts[under]
            known = ~np.isnan(above + below)
            if known.any():
                found[key][name] = _mean(above[known], below[known], seed, DRAWS)
    return found


def _mean(above: NDArray[np.float64], below: NDArray[np.float64], seed: int, draws: int) -> Interval:
    """Sum of the values `above` divided by the sum of the values `below`, with standard deviation and interval."""
    value, each = float(above.sum() / below.sum()), above / below
    if np.ptp(each) == 0:
        end = value if len(each) > 1 else None
        return Interval(value=value, std=0.0, low=end, high=end)
    low, high = quotient_ends(above, below, seed=seed, draws=draws).tolist()
    return Interval(value=value, std=float(np.std(each)), low=low, high=high)
