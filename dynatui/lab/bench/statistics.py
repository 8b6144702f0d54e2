"""Medians of values in lists; `dynatui.lab.frame` computes them."""

from collections.abc import Sequence
from typing import TypeAlias

import pandas as pd

from dynatui.lab.frame import Median, median

Groups: TypeAlias = Sequence[Sequence[float | None]]
"""Values by prompt and repeat; None if unknown."""


def estimate(groups: Groups, seed: int) -> Median | None:
    """Median of the medians of all groups, with a bootstrap interval; None if there is no value."""
    known = [(prompt, value) for prompt, group in enumerate(groups) for value in group if value is not None]
    prompts, values = zip(*known, strict=True) if known else ((), ())
    return median(pd.Series(values, pd.Index(prompts, name="prompt"), "float64"), seed)


def ratios(numerators: Groups, denominators: Groups) -> list[list[float]]:
    """Quotients of values that were measured side by side, without those of which a value is unknown."""
    return [
        [over / under for over, under in zip(above, below, strict=False) if over is not None and under is not None]
        for above, below in zip(numerators, denominators, strict=True)
    ]
