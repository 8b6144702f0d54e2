"""Names of verifiers and draftings, and which of them go together; other combinations are refused.

By exact enumeration: over a deterministic tree every verifier but coupled sampling and nss is biased, by up to .7 in
total variation, since all others judge a token by its probability to be drawn. Knows no verifier's code, so that
command lines are read without torch.
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
    """Deterministic: the most probable tokens, with or without knobs."""
    IID = "iid"
    """Independent rollouts from the root."""
    DELAYED = "delayed"
    """One path, then independent rollouts from its end."""
    SELECTOR = "selector"
    """Delayed, of a shape that is chosen each round from what is known before the first draw."""


def lossless_with(name: str, drafting: Drafting, paths: int = 1) -> bool:
    """Whether a verifier keeps the target's distribution with so many drafted paths of such a drafting."""
    if drafting is Drafting.TREE:
        return name in (COUPLED, "nss")
    return name != COUPLED and (paths == 1 or name != "block")


def require_lossless(name: str, drafting: str, paths: int = 1) -> None:
    """Refuses a verifier that would be biased, or cannot work, with a drafting; temperatures above 0 alone need it.

    Args:
        name: Of a verifier.
        drafting: Of a `Drafting`.
        paths: Most rollouts, K.

    Raises:
        ConfigError: They do not fit, or there is no verifier or drafting of that name.
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
