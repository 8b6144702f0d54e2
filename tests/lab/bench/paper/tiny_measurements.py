"""Measurements of tiny models: all experiments in a second or two."""

from collections.abc import Callable
from typing import Any

from dynatui.lab.bench.data_sets.prompts import TextSet
from dynatui.lab.bench.paper.experiments import Extent, fixed_grid, sensitivity
from dynatui.lab.bench.paper.job import OnPaper, Prepared, measure, prepared
from dynatui.lab.bench.paper.records import CostCurve
from tests import tiny
from tests.lab.bench.makers import on_cpu

TEXTS = ("The tree grows where the draft is sure", "A small model guesses", "Nothing is lost: the text")
WIKITEXT = TextSet(name="wikitext", title="Some texts", stands_for="WikiText-2", prompts=TEXTS)
BOOKS = TextSet(name="books", title="Some books", stands_for="PG-19", prompts=TEXTS[::-1])
EXTENT = Extent(
    lanes=("linear K=4", "phase 3"),
    prompts=2,
    length=12,
    lengths=(4, 9, 100),
    prompt_lengths=(8, 20),
    varied=sensitivity(thresholds=((0.8, 0.3),), breadths=((1, 2),), depths=((4, 6),)),
    grid=fixed_grid(depths=(3,), branchings=(2, 3), taus=(0.05,)),
    grid_prompts=1,
    warm_up=1,
    attempts=1,
)


def job(pair: tiny.TinyPair, extent: Extent = EXTENT, **changes: Any) -> OnPaper:
    return OnPaper(extent=extent, **{"text_sets": (WIKITEXT, BOOKS)} | on_cpu(pair) | changes)


def readied(request: OnPaper, note: Callable[[str], None]) -> Prepared:
    """A measurement before its first turn; its log is no longer locked."""
    with prepared(request, note) as ready:
        return ready


def done(request: OnPaper, note: Callable[[str], None] = lambda _: None) -> Prepared:
    """A measurement after its last turn."""
    with prepared(request, note) as ready:
        list(measure(ready, note))
        return ready


KNOWN_COSTS = CostCurve(rows=(1,), verify_s=(1.0,), draft_s=(1.0,))
"""Replaces a cost curve that takes seconds to measure."""
