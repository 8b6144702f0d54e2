"""Profiles whose numbers tests choose: an 8B target in bfloat16, drafts with the given survival rates."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from dynatui.servers.profile_file import SCHEMA, Acceptance, Chain, DraftProfile, ModelSize, Profile

TARGET = ModelSize(name="org/Target-8B", weights_bytes=16e9, pass_bytes=16e9, weights=8e9, kv_bytes_per_token=131072)
HEAD = ModelSize(name="org/Head", weights_bytes=0.9e9, pass_bytes=0.9e9, weights=0.45e9, kv_bytes_per_token=4096)
CODE = (0.837, 0.685, 0.562, 0.460, 0.368, 0.283, 0.217, 0.161)
WRITING = (0.617, 0.388, 0.244, 0.158, 0.099, 0.062, 0.041, 0.026)
"""Survival rates of speculators' issue 1135: HumanEval and writing."""


def constant(rate: float, longest: int = 8) -> tuple[float, ...]:
    """If each token is accepted with the same probability after those before it."""
    return tuple(accumulate([rate] * longest, lambda before, each: before * each))


def chains(survival: Sequence[float], around: float | None = None) -> dict[str, Any]:
    """Fields of an `Acceptance` in which a chain's rates do not depend on its length; `around` is half the width of the
    intervals of L.
    """
    every = [
        Chain(rounds=1000, survival=tuple(survival[:k]), length_interval=_interval(survival[:k], around))
        for k in range(1, len(survival) + 1)
    ]
    return {
        "rounds": 1000,
        "survival": every[-1].survival,
        "length_interval": every[-1].length_interval,
        "shorter": tuple(every[:-1]),
    }


def _interval(survival: Sequence[float], around: float | None) -> tuple[float, float] | None:
    length = 1 + sum(survival)
    return None if around is None else (length - around, length + around)


def acceptance(survival: Sequence[float]) -> Acceptance:
    return Acceptance(**chains(survival))


def draft(survival: Sequence[float], *, around: float | None = None, **fields: Any) -> DraftProfile:
    given: dict[str, Any] = chains(survival, around) | {"kind": "eagle3", "size": HEAD} | fields
    return DraftProfile(**given)


def profile(drafts: dict[str, DraftProfile], **fields: Any) -> Profile:
    usual: dict[str, Any] = {"target": TARGET.name, "size": TARGET, "prompts": 20, "tokens": 5000, "mean_context": 1000}
    return Profile(schema=SCHEMA, drafts=drafts, **(usual | fields))
