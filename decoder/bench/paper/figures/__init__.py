"""The paper's figures from our own measurements, as files.

`files` draws all of `catalogue`; `cells` and `tree_grid` choose what is shown, `style`, `marks` and `note` how; every
other module is a figure, or a few that belong together.
"""

from decoder.bench.paper.figures.files import draw

__all__ = ["draw"]
