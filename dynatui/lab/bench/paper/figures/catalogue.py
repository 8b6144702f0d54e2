"""All figures by name, drawn as PNG and SVG; equal reports give files with equal bytes."""

import io
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from matplotlib import style
from matplotlib.figure import Figure

from dynatui.lab.bench.paper.figures.compared import ablation_progression, main_results_bars, speed_against_nodes
from dynatui.lab.bench.paper.figures.marks import SETTINGS
from dynatui.lab.bench.paper.figures.sweeps import (
    fixed_tree_sweep,
    length_scaling_fourpanel,
    parameter_sensitivity,
    prompt_length_sensitivity,
)
from dynatui.lab.bench.paper.report import PaperReport

Drawn: TypeAlias = Callable[[PaperReport], Figure | None]
"""Function that draws a figure of a report; it returns None if the report lacks the data of the figure."""
FIGURES: Mapping[str, Drawn] = {
    function.__name__: function
    for function in (
        main_results_bars,
        ablation_progression,
        length_scaling_fourpanel,
        parameter_sensitivity,
        fixed_tree_sweep,
        prompt_length_sensitivity,
        speed_against_nodes,
    )
}
"""Drawing functions by file name, for the paper's figures 3 to 8 and one further figure."""
FORMATS: Mapping[str, Mapping[str, str | None]] = {"png": {}, "svg": {"Date": None}}
"""File metadata by format; SVG files get no date, so that files of equal figures are equal."""


def pictures(report: PaperReport) -> Iterator[tuple[str, bytes]]:
    """Yields the name and content of each file of each figure."""
    for name, function in FIGURES.items():
        with style.context([dict(SETTINGS)], after_reset=True):
            figure = function(report)
            contents = {kind: _saved(figure, kind) for kind in FORMATS} if figure else {}
        yield from ((f"{name}.{kind}", content) for kind, content in contents.items())


def _saved(figure: Figure, kind: str) -> bytes:
    written = io.BytesIO()
    figure.savefig(written, format=kind, metadata=dict(FORMATS[kind]))
    return written.getvalue()
