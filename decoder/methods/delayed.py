"""delayed: trees sampled from the draft, with a lossless verifier (section 5 of the paper cited in
`decoder.verify.lossless`). The options --verifier and --drafting apply to all methods: with drafting `tree`, the
verifier checks the trees of the other methods, which are not sampled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

from decoder.draft.delayed_shape import MOST, DelayedTree
from decoder.errors import ConfigError, about
from decoder.events import Limit
from decoder.knobs import HIGHEST_BRANCHING, HIGHEST_DEPTH, KnobInfo, require_feasible
from decoder.methods.method import Method, Option, whole_numbers
from decoder.tree_rules import Budget, TreeRule, fixed_growth
from decoder.verify.names import COUPLED, VERIFIER_NAMES, Drafting, VerifierRules, require_lossless

if TYPE_CHECKING:
    from decoder.engine import Engine
    from decoder.selector.chooser import Chooser
    from decoder.session.protocol import Session

DRAFT_STREAM, VERIFY_STREAM = 1, 2
"""Numbers of separate random streams: a verifier that used the draft's random numbers would be biased."""
_VERIFIERS = (COUPLED, *(name for name in VERIFIER_NAMES if name != "block"), "block")
"""Values of the knob `verifier`. `coupled` is invalid for sampled trees, `block` for trees with several paths."""
_DRAFTINGS = tuple(Drafting)
SHIPPED, NONE = "shipped", ""
"""Values of `selector` other than a file: the selector shipped for the embedded pair, or no selector."""


def _verifier_ends(own: "Delayed") -> tuple[float, float]:
    if own.drafting == Drafting.TREE:
        return 0.0, 1.0
    return 1.0, len(_VERIFIERS) - (1.0 if own.paths == 1 or own.selects else 2.0)


def _drafting_ends(own: "Delayed") -> tuple[float, float]:
    if not own.draws:
        return 0.0, 0.0
    drawn = float(_DRAFTINGS.index(Drafting.SELECTOR)) if own.selects or own.selector else 2.0
    # The verifier `block` allows one path only. With this verifier, the selector chooses trees of one path. The other
    # kinds of drafting would sample `k` paths, so the knob does not offer them if `k` is above 1.
    return (drawn if own.verifier == "block" and own.k > 1 else 1.0), drawn


@dataclass(frozen=True)
class Delayed(VerifierRules):
    """A tree with a path of `l1` sampled tokens, then `k` rollouts of `l2` tokens from its end; with drafting `iid`,
    `k` rollouts of `l1` + `l2` tokens from the root.
    """

    k: int = 2
    l1: int = 2
    l2: int = 2
    selector: str = SHIPPED
    """A file name, `SHIPPED` or `NONE`."""

    knobs: ClassVar[tuple[KnobInfo, ...]] = (
        KnobInfo("rollouts", "K", "rollouts from the end of the path", "whole",
                 lambda own: (1.0, 1.0 if own.verifier == "block" else float(max(HIGHEST_BRANCHING, own.k))),
                 turns="k", keys="[]", brief="rollouts", key_help="delayed: rollouts of a tree"),
        KnobInfo("l1", "L1", "sampled tokens before the branch point", "whole",
                 lambda own: (0.0, float(max(HIGHEST_DEPTH, own.l1))),
                 keys="{}", brief="path before", key_help="delayed: sampled tokens before the branch point"),
        KnobInfo("l2", "L2", "draws of each rollout", "whole", lambda own: (0.0, float(max(HIGHEST_DEPTH, own.l2))),
                 keys="-=", brief="rollout length", key_help="delayed: length of rollouts"),
        KnobInfo("verifier", "verifier", "rule that accepts drafted tokens", "switch", _verifier_ends, coarse=1,
                 values={name: name for name in _VERIFIERS}),
        KnobInfo("drafting", "drafting", "how trees are drawn", "switch",
                 _drafting_ends, coarse=1,
                 values={name.value: name.value for name in _DRAFTINGS}),
    )  # fmt: skip

    def __post_init__(self) -> None:
        _ = self.shape
        require_feasible({"K (L1 + L2)": self.k * (self.l1 + self.l2)}, "k", "l1", "l2")
        require_lossless(self.verifier, self.drafting, self.paths)

    @property
    def shape(self) -> DelayedTree:
        """Shape of the trees; with drafting `selector`, of trees whose shape the selector does not choose."""
        l1 = 0 if self.drafting == Drafting.IID else self.l1
        k = 1 if self.selects and self.verifier == "block" else self.k
        return DelayedTree(k, l1, self.l1 + self.l2 - l1)

    @property
    def selects(self) -> bool:
        return self.drafting == Drafting.SELECTOR

    @property
    def paths(self) -> int:
        return self.shape.canonical().k

    def rule(self) -> TreeRule:
        shape = MOST if self.selects else self.shape
        return TreeRule(fixed_growth(shape.depth, 0, shape.k), Budget(shape.most_nodes))

    def limit(self, depth: int, probability: float) -> Limit:
        del depth, probability
        return "l2" if self.shape.l2 else "l1"


def _opened(engine: "Engine", prompt_ids: Sequence[int], max_new_tokens: int, rules: Delayed) -> "Session":
    from decoder.draft.draft_passes import DraftPasses
    from decoder.draft.drawn_drafter import DrawnDrafter, ShapeChoice
    from decoder.session.host import HostSession
    from decoder.session.steering import KnobState
    from decoder.verify.independent import IndependentVerifier
    from decoder.verify.lossless.random_generator import PhiloxGenerator

    rules = rules.drawn()
    chooser = _chooser(engine, len(prompt_ids), rules)
    pair = chooser.pair if chooser else engine.pair
    # Without a selector, the knob `drafting` must not offer the value `selector`.
    knobs = KnobState(rules if chooser else replace(rules, selector=NONE))

    def now() -> Delayed:
        return cast("Delayed", knobs.rules)

    def choose(draft: DraftPasses, text: Sequence[int]) -> ShapeChoice:
        chosen = chooser.choose(draft, text, now().verifier) if chooser and now().selects else None
        return chosen or ShapeChoice(now().shape)

    drafter = DrawnDrafter(
        DraftPasses(pair.draft_model, pair.vocabulary, len(prompt_ids) + max_new_tokens),
        choose,
        engine.sampling,
        PhiloxGenerator(engine.seed, DRAFT_STREAM),
    )
    generator = PhiloxGenerator(engine.seed, VERIFY_STREAM)
    observe = chooser.observe if chooser else None
    verifier = IndependentVerifier(lambda: now().verifier, engine.sampling, generator, observe)
    return HostSession(pair, prompt_ids, max_new_tokens, knobs, drafter, verifier)


def _chooser(engine: "Engine", length: int, rules: Delayed) -> "Chooser | None":
    """None if the selector is not in use and cannot be switched on during the run. Raises ConfigError if the selector
    is not available, although it is in use or was given as a file.
    """
    if not (rules.selects or rules.selector):
        return None
    from decoder.selector import latency
    from decoder.selector.chooser import Chooser, load

    pair = engine.pair.observed()
    try:
        with about("selector"):
            policies = load("" if rules.selector in (SHIPPED, NONE) else rules.selector, pair)
    except ConfigError:
        if rules.selects or rules.selector != SHIPPED:
            raise
        return None
    if rules.selects:
        # Costs are measured here, before the first round, so that no round's time includes the measurement.
        engine.costs_of(length)
    return Chooser(policies, pair, engine.sampling, lambda: latency.of_one_row(engine.costs_of(length)))


def _read(shape: str) -> Mapping[str, Any]:
    return dict(zip(("k", "l1", "l2"), whole_numbers("--delayed", shape, example="2,2,2"), strict=True))


METHOD = Method(
    "delayed",
    "trees sampled from the draft, with a lossless verifier",
    Delayed(),
    opened=_opened,
    own_noise=True,
    needs_model=True,
    options=(
        Option("verifier", str, "NAME", "Rule that accepts drafted tokens when sampling. coupled and nss give the "
               "same text as ar, whatever the draft. The other rules need sampled trees: "
               + ", ".join(VERIFIER_NAMES[1:]) + ".",
               choices=(COUPLED, *VERIFIER_NAMES)),
        Option("drafting", str, "NAME", "How trees are drafted when sampling. tree: of the draft's most "
               "probable tokens. iid, delayed and selector: of tokens that the method delayed samples from the draft; "
               "with selector, each round has a tree of its own shape.",
               choices=_DRAFTINGS),
        Option("delayed", str, "K,L1,L2", "Shape of delayed's trees: number of rollouts, number of tokens "
               "before the branch point, length of a rollout in tokens.",
               ("k", "l1", "l2"), _read, lambda own: f"{own.k},{own.l1},{own.l2}"),
        Option("selector", str, "FILE", "File of the selector that chooses shapes with --drafting selector, as made by "
               f"dynatui selector train. {SHIPPED}: the selector that comes with dynatui for the embedded pair."),
    ),
)  # fmt: skip
