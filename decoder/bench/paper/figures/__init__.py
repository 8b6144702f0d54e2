"""The paper's figures from measurements here, as files.

`files` draws all of `catalogue`; `cells` and `tree_grid` choose the content, `style`, `marks` and `note` the look;
every other module is a figure, or a few that belong together.
"""

from decoder.bench.paper.figures.files import draw

__all__ = ["draw"]
