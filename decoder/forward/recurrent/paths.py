"""Root-to-leaf paths of drafted rows, for modules that compute a sequence from its beginning and take no tree mask.

Rows are numbered from the first one after the committed text, in the order of their passes; a row's parent comes before
it. Pure; knows neither modules nor caches.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

NO_PARENT = -1
"""Parent of a row that directly follows the committed text."""


def with_parents(parents: Sequence[int], visible: Bool[np.ndarray, "N M"]) -> list[int]:
    """Parents of all drafted rows: the rows of earlier passes, and the N rows of the next pass.

    Args:
        parents: Parents of the rows of earlier passes.
        visible: Which of the last M rows, drafted and new, each new row attends to.

    Raises:
        ValueError: A new row attends to rows that do not form one path.
    """
    count, recent = visible.shape
    total = len(parents) + count
    drafted = min(recent, total)
    seen = np.ones((count, total), dtype=np.bool_)
    seen[:, total - drafted :] = visible[:, recent - drafted :]
    earlier = seen & np.tri(count, total, len(parents) - 1, dtype=np.bool_)
    nearest = np.where(earlier.any(1), total - 1 - earlier[:, ::-1].argmax(1), NO_PARENT)
    known = [*parents, *nearest.tolist()]
    depths: list[int] = []
    for parent in known:
        depths.append(1 if parent == NO_PARENT else 1 + depths[parent])
    if not visible[:, : recent - drafted].all() or (seen.sum(1) != depths[len(parents) :]).any():
        raise ValueError(
            "each row of a model that computes paths must attend to the whole text and to the rows of one path"
        )
    return known


def path_to(row: int, parents: Sequence[int]) -> list[int]:
    """Rows of the path from the text to `row`; `row` is the last of them."""
    path = []
    while row != NO_PARENT:
        path.append(row)
        row = parents[row]
    return path[::-1]


@dataclass(frozen=True)
class PathBatch:
    """The paths that cover the rows of one pass, and the place of each of these rows in the paths."""

    paths: Sequence[Sequence[int]]
    """B paths to the leaves among the new rows."""
    padded: Int[np.ndarray, "B T"]
    """The same paths, all of one length: a shorter path repeats its last row; the repetition changes no earlier row."""
    places: Int[np.ndarray, "N"]
    """Index of each new row among the B x T rows of `padded`."""

    @property
    def unpadded(self) -> dict[tuple[int, ...], int]:
        """Index in the batch of each path that is not padded; keys are the paths."""
        longest = self.padded.shape[1]
        return {tuple(path): number for number, path in enumerate(self.paths) if len(path) == longest}


def path_batch(parents: Sequence[int], first: int) -> PathBatch:
    """Paths that cover the row `first` and all later rows."""
    inner = set(parents)
    paths = [path_to(row, parents) for row in range(first, len(parents)) if row not in inner]
    longest = max(map(len, paths))
    padded = np.array([[*path, *[path[-1]] * (longest - len(path))] for path in paths])
    places = {row: index for index, row in reversed(list(enumerate(padded.flat)))}
    return PathBatch(paths, padded, np.array([places[row] for row in range(first, len(parents))]))
