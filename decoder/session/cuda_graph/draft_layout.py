"""Where what drafts of one shape grow lies: device tensors that never change, made before anything is captured.

Rows are nodes that may grow, the root first, level after level. Each has as many candidates, in the order of the rows;
behind the last row are others of no level, so that there are more candidates than any tree has nodes.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from decoder.session.cuda_graph.static_shapes import MOST_NODES, Shape

PLACES = MOST_NODES - 1
"""Drafted nodes that stay at most."""
WHOLE, PART = 8000, 400
"""Of so many numbers a row or fewer, or so few in each of many rows, CUDA's top-k is one kernel; of more it is 22."""


class Layout:
    """What all drafts of one shape have in common."""

    def __init__(self, shape: Shape, vocabulary: int, device: torch.device) -> None:
        def whole(numbers: list[int]) -> Int[Tensor, "N"]:
            return torch.tensor(numbers, device=device)

        self.first, self.best, self.deepest = shape.first, shape.best, shape.deepest
        self.children = min(shape.widest, vocabulary)
        """Candidates of a row."""
        self.even = shape.even or self.children == 1
        self.parts = parts(vocabulary, self.children)
        """Of the vocabulary, whose best tokens are among the best of each part."""
        self.part_starts: Int[Tensor, "P 1"] = whole([*range(0, vocabulary, vocabulary // self.parts)])[:, None]
        self.widths = [1]
        for width in shape.widths[1:]:
            self.widths.append(min(width, self.widths[-1] * self.children))
        self.rows = sum(self.widths)
        depths = [depth for depth, width in enumerate(self.widths) for _ in range(width)]
        padding = max(0, -(-PLACES // self.children) - self.rows) + 1
        self.depths: Int[Tensor, R] = whole(depths + [0] * padding)
        """Of rows."""
        self.levels: Int[Tensor, R] = whole([depth + 2 for depth in depths] + [0] * padding)
        """Of the rows' children, as the device state has them."""
        above = [self.candidates(max(0, depth - 1)).start for depth in depths]
        self.offsets: Int[Tensor, R] = whole(above + [0] * padding)
        """The first candidate of each row's own level."""
        self.places: Int[Tensor, P] = whole([*range(self.first), *(self.first - 1 + depth for depth in depths[1:])])
        """Of the rows of all passes, counted from the first one's."""
        self.nowhere: Int[Tensor, Q] = whole([-1] * padding)
        self.no_paths: Float[Tensor, Q] = torch.full((padding,), -torch.inf, dtype=torch.float64, device=device)
        self.every_depth: Float[Tensor, D] = torch.arange(self.deepest, dtype=torch.float64, device=device)
        rows = whole([row for width in self.widths for row in range(width)] + [0] * padding)
        self.lines: Int[Tensor, "3 C"] = torch.stack((rows * 0, rows * 0, rows)).repeat_interleave(self.children, 1)
        """Of candidates, before any is known: token, path as the bits of a float64, its row's place in the level."""
        self.no_candidate: Int[Tensor, ""] = whole([self.lines.shape[1] - 1])[0]

    def candidates(self, depth: int) -> slice:
        """The children of the rows of a depth."""
        first = sum(self.widths[:depth]) * self.children
        return slice(first, first + self.widths[depth] * self.children)


def parts(vocabulary: int, best: int) -> int:
    """Equal parts of a vocabulary, few enough and small enough, where looking for its best tokens so is faster."""
    if vocabulary < WHOLE:
        return 1
    sizes = (size for size in range(PART - 1, best - 1, -1) if vocabulary % size == 0)
    return next((vocabulary // size for size in sizes if vocabulary // size * best < WHOLE), 1)
