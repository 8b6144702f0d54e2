"""eagle2: the tree of EAGLE-2 (Li et al. 2024, section 4), which SGLang and TensorRT-LLM also use. A beam of the most
probable nodes grows level by level; then the most probable of all drafted nodes are kept.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from decoder.errors import require
from decoder.events import Limit
from decoder.knobs import HIGHEST_BRANCHING, HIGHEST_DEPTH, HIGHEST_NODES, KnobInfo, require_feasible
from decoder.methods.method import Method, Option, Sweep, whole_numbers
from decoder.tree_rules import Budget, Rules, TreeRule, fixed_growth


@dataclass(frozen=True)
class Eagle2(Rules):
    """A tree in which the `topk` most probable nodes of each level get `topk` children each. The parameters are
    SGLang's `--speculative-num-steps`, `--speculative-eagle-topk` and `--speculative-num-draft-tokens`.
    """

    steps: int = 5
    """Number of levels below the root."""
    topk: int = 4
    draft_tokens: int = 8
    """Number of nodes that are verified, with the root."""

    knobs: ClassVar[tuple[KnobInfo, ...]] = (
        KnobInfo("eagle_steps", "steps", "levels below the root", "whole",
                 lambda own: (1.0, float(max(HIGHEST_DEPTH, own.steps))), turns="steps",
                 keys="-=", brief="levels", key_help="eagle2: levels"),
        KnobInfo("eagle_topk", "top-k", "nodes that grow, and their children", "whole",
                 lambda own: (1.0, float(max(HIGHEST_BRANCHING, own.topk))), turns="topk", coarse=2,
                 keys="[]", brief="nodes that grow", key_help="eagle2: nodes that grow"),
        KnobInfo("draft_tokens", "N", "nodes verified, root included", "whole",
                 lambda own: (2.0, float(max(HIGHEST_NODES, own.draft_tokens))), coarse=8,
                 keys="{}", brief="nodes verified", key_help="eagle2: verified nodes"),
    )  # fmt: skip

    def __post_init__(self) -> None:
        require(self.steps >= 1, f"eagle2 has {self.steps} steps; give 1 or more")
        require(self.topk >= 1, f"eagle2's top-k is {self.topk}; give 1 or more")
        require(self.draft_tokens >= 2, f"eagle2 verifies {self.draft_tokens} tokens; give 2 or more")
        large = {"eagle2's steps": self.steps, "eagle2's top-k": self.topk, "eagle2's N": self.draft_tokens}
        require_feasible(large)

    def rule(self) -> TreeRule:
        return TreeRule(
            fixed_growth(self.steps, 0, self.topk), Budget(self.draft_tokens - 1, best=True, beam=self.topk)
        )

    def limit(self, depth: int, probability: float) -> Limit:
        del probability
        return "eagle_steps" if depth >= self.steps else "draft_tokens"


PRESETS: Mapping[str, Eagle2] = {"sglang": Eagle2(), "eagle2": Eagle2(6, 10, 60)}
"""Presets by name: SGLang's defaults for Llama, and the defaults of EAGLE-2's own code."""


def _read(given: str) -> Mapping[str, Any]:
    if given in PRESETS:
        return asdict(PRESETS[given])
    return dict(zip(("steps", "topk", "draft_tokens"), whole_numbers("--eagle2", given, example="5,4,8"), strict=True))


METHOD = Method(
    "eagle2",
    "EAGLE-2's tree: a beam per level, then the best nodes",
    Eagle2(),
    options=(
        Option(
            "eagle2",
            str,
            "S,K,N",
            "Levels of EAGLE-2's tree, nodes of a level that get children and how many each, and nodes verified, as "
            "SGLang counts them (the root included); sglang: 5,4,8; eagle2: 6,10,60, as in EAGLE-2's code.",
            ("steps", "topk", "draft_tokens"),
            _read,
            lambda own: f"{own.steps},{own.topk},{own.draft_tokens}",
            tuple(PRESETS),
        ),
    ),
    sweep=Sweep(
        "SxKxN,..",
        "Trees of EAGLE-2 to measure, each as levels x nodes that grow x nodes verified.",
        f"{Eagle2.steps}x{Eagle2.topk}x{Eagle2.draft_tokens}",
        "5x4x8",
        lambda steps, topk, draft_tokens: {"steps": steps, "topk": topk, "draft_tokens": draft_tokens},
    ),
)
