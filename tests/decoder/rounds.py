"""Rounds written by hand: by default a bare root, one committed token and a second of time."""

from collections.abc import Sequence
from typing import Any

from decoder.events import Round


def a_round(method: str = "dynatree", parents: Sequence[int] = (-1,), **changes: Any) -> Round:
    """A round with this tree; each token is its node's number."""
    nodes = len(parents)
    plain: dict[str, Any] = {
        "round": 0, "position": 0, "t": 1.0, "wall_s": 1.0, "draft_s": 0.25, "verify_s": 0.5, "commit_s": 0.125,
        "target_forwards": 1, "draft_forwards": 2, "tokens": list(range(nodes)), "logprobs": [0.0] * nodes,
        "pieces": ["x"] * nodes, "accepted": [], "committed": [5], "text": "x",
    }  # fmt: skip
    return Round(**(plain | changes), method=method, parents=list(parents))
