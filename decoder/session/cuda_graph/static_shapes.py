"""All methods' rules in one form: numbers that a device may read, and the few that decide how large its tensors are.

Pure; knows neither tensors nor models. A level's width is fixed and still exact: the probabilities of a level's paths
sum to 1 at most, so no more than 1 / stop of them reach `stop` and grow.
"""

import math
from dataclasses import dataclass
from functools import cached_property

from decoder.config import AdaptiveTree, Auto, DynaTree, Fixed, Linear, Rules

MOST_ROWS = 1024
"""Rows that one draft may forward."""
BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 264)
"""Rows of a verification; the last holds 256 nodes and their root."""
MOST_NODES = BUCKETS[-1]
"""Of a tree, the root among them."""
DEEPEST = 32
WINDOW = 63
"""Longest window of history: as many shares as add up without rounding in 64 bits."""
SLACK = 1e-4
"""Path probabilities come from float32 numbers: those of one level may sum to a little more than 1."""
FIRST_ROWS = (2, 16, 64, 256)
"""Rows of the draft's first pass: the last tokens, of which it may lack one or two, or more after plain rounds."""
BEAM = 16
"""Nodes of one level that grow where each round decides how many nodes pay."""


@dataclass(frozen=True)
class Rule:
    """A node of depth d grows iff d < deepest, p >= stop, and d < d0 or p >= deep."""

    deepest: float
    stop: float
    deep: float
    d0: float
    """Real-valued; used as floor(d0 + 0.5)."""
    tau_h: float
    tau_l: float
    narrow: float
    """Children where the largest next-token probability is at least `tau_h`."""
    middle: float
    wide: float
    """Children where it is under `tau_l`."""
    n_max: float
    history: float = 0.0
    """1 where past rounds move `d0` and `tau_h`."""
    window: float = 1.0
    target: float = 0.0
    """Depth acceptance that history steers towards."""
    eta_d: float = 0.0
    eta_h: float = 0.0


def rule(rules: Rules) -> Rule:
    """These rules as numbers."""
    match rules:
        case Linear(k=k):
            return Rule(k, 0, 0, k, 1, 0, 1, 1, 1, k)
        case Fixed(depth=depth, branching=width, tau=tau, n_max=n_max):
            return Rule(depth, tau, 0, depth, 1, 0, width, width, width, n_max)
        case DynaTree(n_max=n_max):
            return _adaptive(rules, n_max)
        case Auto():
            return _adaptive(rules, 0)


def _adaptive(rules: AdaptiveTree, n_max: int) -> Rule:
    """An adaptive tree of at most `n_max` nodes."""
    return Rule(
        deepest=rules.d_max,
        stop=max(rules.rho_stop, rules.tau),
        deep=rules.rho_deep,
        d0=rules.d0,
        tau_h=rules.tau_h,
        tau_l=rules.tau_l,
        narrow=rules.branching[0],
        middle=rules.branching[1],
        wide=rules.branching[2],
        n_max=n_max,
        history=float(rules.history),
        window=rules.window,
        target=rules.target_acceptance,
        eta_d=rules.eta_d,
        eta_h=rules.eta_h,
    )


@dataclass(frozen=True)
class Shape:
    """How large a draft's tensors are; all rules of one shape share one captured graph."""

    widest: int
    """Children of a node."""
    widths: tuple[int, ...]
    """Nodes of depth 0, 1, 2, ... that may grow."""
    best: bool
    """Whether the most probable nodes stay, and not the first."""
    first: int = FIRST_ROWS[0]
    """Rows of the first pass."""

    @property
    def deepest(self) -> int:
        """No node is deeper."""
        return len(self.widths)

    @cached_property
    def rows(self) -> int:
        """Drafted nodes that are forwarded."""
        return sum(self.widths[1:])

    @cached_property
    def candidates(self) -> int:
        """Drafted nodes at most."""
        return self.widest * sum(self.widths)


def shape(rules: Rules) -> Shape:
    """The shape of these rules' drafts; knobs that leave it alone may be turned at no cost."""
    given = rule(rules)
    widest, deepest = int(given.wide), int(given.deepest)
    most = 1 << (_growing(given) - 1).bit_length()
    widths = [1]
    while len(widths) < deepest:
        widths.append(min(widths[-1] * widest, most))
    return Shape(widest, tuple(widths), isinstance(rules, DynaTree) and rules.selection == "best")


def beam(rules: Auto, depth: int) -> Shape:
    """The shape of a draft of so many levels, whose most probable nodes stay."""
    widest, widths = rules.branching[-1], [1]
    while len(widths) < depth:
        widths.append(min(widths[-1] * widest, BEAM))
    return Shape(widest, tuple(widths), best=True)


def _growing(given: Rule) -> int:
    """Most nodes of one level that grow."""
    return int(given.n_max if given.stop == 0 else min(given.n_max, math.floor((1 + SLACK) / given.stop)))


def most_nodes(rules: Rules) -> int:
    """The largest tree of these rules, its root included."""
    given = rule(rules)
    width, nodes = 1, 0
    for _ in range(int(given.deepest)):
        nodes += width * int(given.wide)
        width = min(width * int(given.wide), _growing(given))
    return 1 + min(nodes, int(given.n_max))


def fits(rules: Rules | None) -> bool:
    """Whether rounds of these rules are best drafted in tensors of fixed size."""
    if rules is None:
        return True
    if rule(rules).deepest > DEEPEST or rule(rules).window > WINDOW:
        return False
    if isinstance(rules, Auto):
        return True
    return most_nodes(rules) <= MOST_NODES and shape(rules).rows <= MOST_ROWS


def first_rows(lacking: int) -> int:
    """Rows of the first pass of a draft that lacks so many of the last tokens."""
    return next(size for size in FIRST_ROWS if size >= lacking)


def bucket(nodes: int) -> int:
    """Rows of the verification of so many nodes."""
    return next(size for size in BUCKETS if size >= nodes)


def levels(nodes: int) -> int:
    """Levels that the verification of so many rows allows for: as many as any tree of that size may have."""
    return min(DEEPEST, nodes - 1)


def slots(rows: int) -> int:
    """Rows of keys and values that attention reads where so many are in use: 256, 384, 512, 768, 1024, ..."""
    size = 256
    while size < rows:
        size = size * 3 // 2 if size & (size - 1) == 0 else size * 4 // 3
    return size
