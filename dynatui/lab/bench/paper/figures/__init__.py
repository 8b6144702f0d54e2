"""The paper's figures, drawn from measurements made here.

`files` writes all figures of `catalogue`. `cells` and `tree_grid` select the data, `style`, `marks` and `note`
determine the appearance, and every other module draws one figure or a few related ones.
"""

from dynatui.lab.bench.paper.figures.files import draw

__all__ = ["draw"]
