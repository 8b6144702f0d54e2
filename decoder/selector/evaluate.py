"""What a selector would bring at roots that it was not trained on, against the best shape for each sampling setting.

Both are judged by the same labels and times; the best shape is the one of the training roots.
"""

from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor

from decoder.draft.delayed_shape import DelayedTree
from decoder.errors import require
from decoder.sampling.settings import Sampling
from decoder.selector.actions import ACTIONS
from decoder.selector.dataset import TEST, Manifest, Roots, round_seconds
from decoder.selector.policy import Policy
from decoder.selector.train import bases, chosen, rate

COMMON = 3
"""Shapes that are named of those that were chosen."""


@dataclass(frozen=True)
class Predicted:
    """At the roots of one sampling setting."""

    sampling: Sampling
    roots: int
    static: DelayedTree
    """The best of all shapes for all training roots."""
    static_rate: float
    """Tokens a second, as is the next."""
    selected_rate: float
    static_tokens: float
    """A round."""
    selected_tokens: float
    common: tuple[tuple[DelayedTree, float], ...]
    """The shapes that were chosen most, each with its share of the roots."""

    @property
    def gain(self) -> float:
        """Of the selector over the best shape."""
        return self.selected_rate / self.static_rate


def predicted(policy: Policy, verifier: str, roots: Roots, manifest: Manifest) -> list[Predicted]:
    """What a selector for a verifier brings at the roots of prompts that are kept for judging, by sampling setting.

    Raises:
        ConfigError: No roots were labelled for this verifier, or no prompts were kept.
    """
    require(
        verifier in roots.tokens,
        f"no roots were labelled for {verifier}, only for {', '.join(roots.tokens)}; give another --data",
    )
    judged, found = roots.part(TEST), roots.fastest(verifier)
    require(len(judged) > 0, f"{manifest.prompts} prompts are too few to keep any for judging; collect more prompts")
    base = bases(roots.training(), verifier, round_seconds(found[None])[0])
    parts = []
    for setting, sampling in enumerate(manifest.plan.settings):
        own = judged.of(judged.setting == setting)
        if len(own) and setting in base:
            parts.append(_predicted(policy, verifier, own, sampling, base[setting], found))
    return parts


def _predicted(policy: Policy, verifier: str, roots: Roots, sampling: Sampling, base: int, found: Tensor) -> Predicted:
    tokens, seconds = roots.tokens[verifier].nan_to_num(0.0), round_seconds(found[None]).expand(len(roots), -1)
    actions, static = chosen(policy, roots, verifier, found), torch.full((len(roots),), base)
    common = Counter(actions.tolist()).most_common(COMMON)
    return Predicted(
        sampling=sampling,
        roots=len(roots),
        static=ACTIONS[base],
        static_rate=rate(tokens, seconds, static),
        selected_rate=rate(tokens, seconds, actions),
        static_tokens=float(tokens.gather(1, static[:, None]).mean()),
        selected_tokens=float(tokens.gather(1, actions[:, None]).mean()),
        common=tuple((ACTIONS[action], count / len(roots)) for action, count in common),
    )
