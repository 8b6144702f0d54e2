"""The lossless verifiers by name, and the drafting that each is lossless with: what does not fit is refused.

By exact enumeration: over a deterministic tree every verifier but nss is biased, by up to .7 in total variation, since
all others judge a token by the chance with which it was drawn.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TypeAlias

from decoder.errors import quoted, require
from decoder.verify.lossless import block, bottom_up, top_down, traversal
from decoder.verify.lossless.batched import bottom_up as batched_bottom_up
from decoder.verify.lossless.batched import plans
from decoder.verify.lossless.batched import top_down as batched_top_down
from decoder.verify.lossless.batched.device_rows import VerifyOnDevice
from decoder.verify.lossless.bottom_up import Stop
from decoder.verify.lossless.coins import Coins
from decoder.verify.lossless.drawn_tree import DrawnTree
from decoder.verify.lossless.khisti import KHISTI
from decoder.verify.lossless.naive import NAIVE
from decoder.verify.lossless.nss import NSS
from decoder.verify.lossless.rows import Rows
from decoder.verify.lossless.specinfer import SPECINFER
from decoder.verify.lossless.spectr import SPECTR
from decoder.verify.lossless.top_down import Accepted, Solver, Verify

ExpectedTokens: TypeAlias = Callable[[DrawnTree, Rows, Rows], float]


class Drafting(StrEnum):
    """How a round's tree comes about."""

    TREE = "tree"
    """Deterministic: the most probable tokens, with or without knobs."""
    IID = "iid"
    """Independent rollouts from the root."""
    DELAYED = "delayed"
    """One path, then independent rollouts from its end."""
    SELECTOR = "selector"
    """Delayed, of a shape that is chosen each round from what is known before the first draw."""


@dataclass(frozen=True)
class LosslessVerifier:
    """One way to verify."""

    verify: Verify
    """In float64, row by row."""
    on_device: VerifyOnDevice
    """On tensors, with one copy of all numbers that coins need; for large vocabularies."""
    expected_tokens: ExpectedTokens
    """Block efficiency of a tree, expected over the coins."""
    any_tree: bool = False
    """Lossless on deterministic trees too."""
    one_path: bool = False
    """Takes no tree but a chain."""


def _top_down(solver: Solver, on_device: VerifyOnDevice, *, any_tree: bool = False) -> LosslessVerifier:
    return LosslessVerifier(
        partial(top_down.verify, solver), on_device, partial(top_down.expected_tokens, solver), any_tree
    )


def _bottom_up(
    stops: Callable[[DrawnTree, Rows, Rows], list[Stop]], on_device: VerifyOnDevice, *, one_path: bool = False
) -> LosslessVerifier:
    def expected_tokens(tree: DrawnTree, target_probs: Rows, draft_probs: Rows) -> float:
        return bottom_up.expected_tokens(tree, stops(tree, target_probs, draft_probs))

    return LosslessVerifier(partial(bottom_up.verify, stops), on_device, expected_tokens, one_path=one_path)


def _first_path(whole: LosslessVerifier) -> LosslessVerifier:
    """The same on the first draw of each node alone."""

    def verify(tree: DrawnTree, target_probs: Rows, draft_probs: Rows, coins: Coins) -> Accepted:
        return whole.verify(tree.first_path(), target_probs, draft_probs, coins)

    def expected_tokens(tree: DrawnTree, target_probs: Rows, draft_probs: Rows) -> float:
        return whole.expected_tokens(tree.first_path(), target_probs, draft_probs)

    return LosslessVerifier(verify, batched_top_down.on_first_path(whole.on_device), expected_tokens)


_NAIVE_TREE = _top_down(NAIVE, partial(batched_top_down.verify, plans.NAIVE))

SOLVERS = {"nss": NSS, "naive_tree": NAIVE, "spectr": SPECTR, "specinfer": SPECINFER, "khisti": KHISTI}
"""Of the verifiers that go top down, for rates of acceptance at a node."""
VERIFIERS = {
    "nss": _top_down(NSS, partial(batched_top_down.verify, plans.NSS), any_tree=True),
    "naive": _first_path(_NAIVE_TREE),
    "naive_tree": _NAIVE_TREE,
    "spectr": _top_down(SPECTR, partial(batched_top_down.verify, plans.SPECTR)),
    "specinfer": _top_down(SPECINFER, partial(batched_top_down.verify, plans.SPECINFER)),
    "khisti": _top_down(KHISTI, partial(batched_top_down.verify_visited, KHISTI)),
    "block": _bottom_up(block.stops, partial(batched_bottom_up.verify, batched_bottom_up.block_stops), one_path=True),
    "traversal": _bottom_up(traversal.stops, partial(batched_bottom_up.verify, batched_bottom_up.traversal_stops)),
}
"""In the order in which the paper reviews them, those that read more of the tree last."""


def lossless_with(name: str, drafting: Drafting, paths: int = 1) -> bool:
    """Whether a verifier keeps the target's distribution with so many drafted paths of such a drafting."""
    verifier = VERIFIERS[name]
    if drafting is Drafting.TREE:
        return verifier.any_tree
    return paths == 1 or not verifier.one_path


def require_lossless(name: str, drafting: str, paths: int = 1) -> None:
    """Refuses a verifier that would be biased, or cannot work, with a drafting; temperatures above 0 alone need it.

    Args:
        name: Of a verifier.
        drafting: Of a `Drafting`.
        paths: Most rollouts, K.

    Raises:
        ConfigError: They do not fit, or there is no verifier or drafting of that name.
    """
    require(
        name in VERIFIERS, f"verifier is {quoted(name)}; there is none of that name; choose from {_names(VERIFIERS)}"
    )
    known = [each.value for each in Drafting]
    require(
        drafting in known, f"drafting is {quoted(drafting)}; there is none of that name; choose from {_names(known)}"
    )
    deterministic = Drafting(drafting) is Drafting.TREE
    fits = lossless_with(name, Drafting(drafting), paths)
    require(
        fits or not deterministic,
        f"verifier {name} is biased on deterministic trees, whose tokens are chosen and not drawn; choose "
        "--verifier nss, or --drafting iid or delayed",
    )
    require(
        fits,
        f"verifier {name} takes one drafted path, not {paths}; give K = 1, or choose --verifier traversal, which does "
        "the same on trees",
    )


def _names(names: Iterable[str]) -> str:
    return ", ".join(names)
