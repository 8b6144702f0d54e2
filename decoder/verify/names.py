"""Names of verifiers and draftings, and the lossless combinations; all other combinations are refused.

Over a deterministic tree every verifier but coupled sampling and nss is biased, by up to .7 in total variation (found
by exact enumeration), since the others judge a token by the probability of drawing it. Knows no verifier's code, so
that command lines are read without torch.
"""

from enum import StrEnum

from decoder.errors import quoted, require

COUPLED = "coupled"
"""Coupled sampling: Gumbel noise that all methods share; every other verifier draws random numbers of its own."""
VERIFIER_NAMES = ("nss", "naive", "naive_tree", "spectr", "specinfer", "khisti", "block", "traversal")
"""Names of the verifiers in `decoder.verify.lossless`."""


class Drafting(StrEnum):
    """How a round's tree is drafted."""

    TREE = "tree"
    """Deterministic: each node's children are the most probable tokens."""
    IID = "iid"
    """Independent rollouts from the root."""
    DELAYED = "delayed"
    """One sampled path, then independent rollouts from its end."""
    SELECTOR = "selector"
    """Delayed, with a shape that a trained selector chooses each round before the first draw."""


def lossless_with(name: str, drafting: Drafting, paths: int = 1) -> bool:
    """Whether a verifier keeps the target's distribution with this drafting and number of drafted paths."""
    if drafting is Drafting.TREE:
        return name in (COUPLED, "nss")
    return name != COUPLED and (paths == 1 or name != "block")


def require_lossless(name: str, drafting: str, paths: int = 1) -> None:
    """Refuses a verifier that is biased, or does not work, with a drafting at a temperature above 0.

    Args:
        name: Name of a verifier.
        drafting: Value of a `Drafting`.
        paths: Most rollouts, K.

    Raises:
        ConfigError: The combination is refused, or a name is unknown.
    """
    verifiers, draftings = (COUPLED, *VERIFIER_NAMES), [each.value for each in Drafting]
    for what, given, known in (("verifier", name, verifiers), ("drafting", drafting, draftings)):
        require(
            given in known, f"{what} is {quoted(given)}; there is none of that name; choose from {', '.join(known)}"
        )
    deterministic = Drafting(drafting) is Drafting.TREE
    fits = lossless_with(name, Drafting(drafting), paths)
    require(
        fits or not deterministic,
        f"verifier {name} is biased on deterministic trees, whose tokens are chosen and not drawn; choose "
        "--verifier nss or coupled, or --drafting iid or delayed",
    )
    require(
        fits or name != COUPLED,
        f"verifier coupled takes no trees that are drawn, and drafting {drafting} draws; choose --verifier traversal "
        "or another one, or --drafting tree",
    )
    require(
        fits,
        f"verifier {name} takes one drafted path, not {paths}; give K = 1, or choose --verifier traversal, which does "
        "the same on trees",
    )
