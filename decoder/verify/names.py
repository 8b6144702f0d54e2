"""Names of verifiers and of kinds of drafting, their lossless combinations (all others are refused), and a parameter
set that contains both.
"""

from abc import ABC
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from decoder.errors import quoted, require
from decoder.tree_rules import Rules

COUPLED = "coupled"
"""Coupled sampling, by Gumbel noise that all methods share. All other verifiers use a random generator."""
VERIFIER_NAMES = ("nss", "naive", "naive_tree", "spectr", "specinfer", "khisti", "block", "traversal")


class Drafting(StrEnum):
    """How a round's tree is drafted."""

    TREE = "tree"
    """Deterministic: each node's children are the most probable tokens."""
    IID = "iid"
    """Independent rollouts from the root."""
    DELAYED = "delayed"
    """One sampled path, then independent rollouts from its end."""
    SELECTOR = "selector"
    """Like `DELAYED`, but a trained selector chooses each round's shape before its first token is sampled."""


def lossless_with(name: str, drafting: Drafting, paths: int = 1) -> bool:
    """Whether texts of verifier `name` have the target's distribution; `paths` is the number of rollouts."""
    if drafting is Drafting.TREE:
        return name in (COUPLED, "nss")
    return name != COUPLED and (paths == 1 or name != "block")


def require_lossless(name: str, drafting: str, paths: int = 1) -> None:
    """Raises ConfigError for an unknown name, or if verifier and drafting are biased together or cannot be combined
    above temperature 0. `paths` is the number of rollouts, K.
    """
    verifiers, draftings = (COUPLED, *VERIFIER_NAMES), [drafting_kind.value for drafting_kind in Drafting]
    for option, value, names in (("verifier", name, verifiers), ("drafting", drafting, draftings)):
        require(
            value in names, f"{option} is {quoted(value)}, which is unknown; choose from {', '.join(names)}", option
        )
    deterministic = Drafting(drafting) is Drafting.TREE
    fits = lossless_with(name, Drafting(drafting), paths)
    require(
        fits or not deterministic,
        f"verifier {name} is biased on deterministic trees, whose tokens are not sampled; choose "
        "--verifier nss or coupled, or --drafting iid or delayed",
        "verifier",
        "drafting",
    )
    require(
        fits or name != COUPLED,
        f"verifier coupled does not work on sampled trees, but drafting {drafting} samples trees; choose another "
        "--verifier, for example traversal, or --drafting tree",
        "verifier",
        "drafting",
    )
    require(
        fits,
        f"verifier {name} takes one drafted path, not {paths}; give K = 1, or choose --verifier traversal, which "
        "takes trees",
        "verifier",
        "drafting",
        "k",
    )


USUAL_VERIFIER = "traversal"


@dataclass(frozen=True)
class VerifierRules(Rules, ABC):
    """The verifier and kind of drafting, which apply to all methods of a run."""

    verifier: str = COUPLED
    drafting: str = Drafting.TREE

    @property
    def draws(self) -> bool:
        """Whether trees are sampled from the draft; otherwise they are deterministic."""
        return self.drafting != Drafting.TREE

    def drawn(self) -> Self:
        """These parameters if they sample trees; otherwise a copy that does, with drafting `delayed`, and with
        `USUAL_VERIFIER` in place of `coupled`.
        """
        if self.draws:
            return self
        verifier = USUAL_VERIFIER if self.verifier == COUPLED else self.verifier
        return replace(self, verifier=verifier, drafting=Drafting.DELAYED)
