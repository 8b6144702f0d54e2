"""delayed: trees that are drawn from the draft, under independent sampling with a lossless verifier.

Which verifier, over which drafting, is a setting of the whole run: with drafting `tree` no tree is drawn, and the other
methods' deterministic trees are verified. "The paper" is that of `decoder.verify.lossless`, section 5.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

from decoder.draft.delayed_shape import DelayedTree
from decoder.events import Limit
from decoder.knobs import HIGHEST_BRANCHING, HIGHEST_DEPTH, KnobInfo, require_feasible
from decoder.methods.method import Method
from decoder.methods.option import Option, whole_numbers
from decoder.tree_rules import Rules, TreeRule, fixed_rule
from decoder.verify.names import COUPLED, VERIFIER_NAMES, Drafting, require_lossless

if TYPE_CHECKING:
    from decoder.engine import Engine
    from decoder.session.protocol import Session

DRAFT_STREAM, VERIFY_STREAM = 1, 2
"""Of coins: a verifier that shared the draft's would be biased."""
USUAL_VERIFIER = "traversal"
_VERIFIERS = (COUPLED, *(name for name in VERIFIER_NAMES if name != "block"), "block")
"""In the order of the knob: the first takes no drawn trees, the last no trees of several paths."""
_DRAFTINGS = tuple(Drafting)


def _verifier_ends(own: "Delayed") -> tuple[float, float]:
    if own.drafting == Drafting.TREE:
        return 0.0, 1.0
    return 1.0, len(_VERIFIERS) - (1.0 if own.paths == 1 else 2.0)


@dataclass(frozen=True)
class Delayed(Rules):
    """A path of `l1` draws, then `k` rollouts of `l2` draws from its end; i.i.d. drafting begins at the root."""

    verifier: str = COUPLED
    drafting: str = Drafting.TREE
    k: int = 2
    l1: int = 2
    l2: int = 2

    knobs: ClassVar[tuple[KnobInfo, ...]] = (
        KnobInfo("rollouts", "K", "rollouts from the end of the path", "whole",
                 lambda own: (1.0, 1.0 if own.verifier == "block" else float(max(HIGHEST_BRANCHING, own.k))),
                 turns="k", keys="[]", brief="rollouts", key_help="of delayed the rollouts of a tree"),
        KnobInfo("l1", "L1", "draws before the tree branches", "whole",
                 lambda own: (0.0, float(max(HIGHEST_DEPTH, own.l1))),
                 keys="{}", brief="path before", key_help="of delayed the draws before its tree branches"),
        KnobInfo("l2", "L2", "draws of each rollout", "whole", lambda own: (0.0, float(max(HIGHEST_DEPTH, own.l2))),
                 keys="-=", brief="rollout length", key_help="of delayed the length of its rollouts"),
        KnobInfo("verifier", "verifier", "what decides which guesses stay", "switch", _verifier_ends, coarse=1,
                 values={name: name for name in _VERIFIERS}),
        KnobInfo("drafting", "drafting", "how trees are drawn", "switch",
                 lambda own: (0.0, 0.0) if own.drafting == Drafting.TREE else (1.0, 2.0), coarse=1,
                 values={name.value: name.value for name in _DRAFTINGS}),
    )  # fmt: skip

    def __post_init__(self) -> None:
        _ = self.shape
        require_feasible({"K (L1 + L2)": self.k * (self.l1 + self.l2)})
        require_lossless(self.verifier, self.drafting, self.paths)

    @property
    def shape(self) -> DelayedTree:
        """What is drawn each round."""
        l1 = 0 if self.drafting == Drafting.IID else self.l1
        return DelayedTree(self.k, l1, self.l1 + self.l2 - l1)

    @property
    def paths(self) -> int:
        """Most rollouts of a tree."""
        return self.shape.canonical().k

    @property
    def draws(self) -> bool:
        """Whether trees are drawn."""
        return self.drafting != Drafting.TREE

    def drawn(self) -> "Delayed":
        """The same, with the usual verifier and drafting where no tree is drawn."""
        if self.draws:
            return self
        verifier = USUAL_VERIFIER if self.verifier == COUPLED else self.verifier
        return Delayed(verifier, Drafting.DELAYED, self.k, self.l1, self.l2)

    def rule(self) -> TreeRule[float]:
        """Bounds of what is drawn."""
        shape = self.shape
        return fixed_rule(shape.depth, 0, shape.k, shape.most_nodes)

    def limit(self, depth: int, chance: float) -> Limit:
        """What ended a path."""
        del depth, chance
        return "l2" if self.shape.l2 else "l1"


def _opened(engine: "Engine", prompt_ids: Sequence[int], max_new_tokens: int, rules: Delayed) -> "Session":
    from decoder.draft.draft_passes import DraftPasses
    from decoder.draft.drawn_drafter import DrawnDrafter
    from decoder.session.host import HostSession
    from decoder.session.knob_state import KnobState
    from decoder.verify.independent import Independent
    from decoder.verify.lossless.coins import PhiloxCoins

    pair, knobs = engine.pair, KnobState(rules.drawn())

    def now() -> Delayed:
        return cast("Delayed", knobs.rules)

    drafter = DrawnDrafter(
        DraftPasses(pair.draft, pair.vocabulary, len(prompt_ids) + max_new_tokens),
        lambda: now().shape,
        engine.sampling,
        PhiloxCoins(engine.seed, DRAFT_STREAM),
    )
    verifier = Independent(lambda: now().verifier, engine.sampling, PhiloxCoins(engine.seed, VERIFY_STREAM))
    return HostSession(pair, prompt_ids, max_new_tokens, knobs, drafter, verifier)


def _read(shape: str) -> Mapping[str, Any]:
    return dict(zip(("k", "l1", "l2"), whole_numbers("--delayed", shape, example="2,2,2"), strict=True))


METHOD = Method(
    "delayed",
    "trees drawn from the draft, with a lossless verifier",
    Delayed(),
    opened=_opened,
    own_noise=True,
    options=(
        Option("verifier", str, "NAME", "What decides which drafted tokens stay when sampling. coupled, or nss: the "
               "text of ar, whatever drafts. The others take drawn trees: " + ", ".join(VERIFIER_NAMES[1:]) + ".",
               choices=(COUPLED, *VERIFIER_NAMES)),
        Option("drafting", str, "NAME", "How trees come about when sampling. tree: the most probable tokens. iid, "
               "delayed: drawn from the draft, by the method delayed.", choices=_DRAFTINGS),
        Option("delayed", str, "K,L1,L2", "Rollouts of delayed's trees, draws before they branch, draws of each "
               "rollout.", ("k", "l1", "l2"), _read, lambda own: f"{own.k},{own.l1},{own.l2}"),
    ),
)  # fmt: skip
