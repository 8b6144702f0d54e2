"""Predicted speed of a selector on test roots, compared with the best fixed shape for each sampling setting.

The speeds of the selector and of the fixed shape are computed from the same labels and times. The best fixed shape is
determined from the training roots.
"""

from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor

from decoder.draft.delayed_shape import DelayedTree
from decoder.errors import require
from decoder.sampling.settings import Sampling
from decoder.selector.actions import ACTIONS
from decoder.selector.policy import Policy
from dynatui.lab.selector.dataset import TEST, Manifest, Roots, round_seconds
from dynatui.lab.selector.train import bases, chosen, rate

COMMON = 3
"""Number of shapes that a report lists; they are the most frequently chosen shapes."""


@dataclass(frozen=True)
class Prediction:
    """Predicted speeds at the test roots of one sampling setting."""

    sampling: Sampling
    roots: int
    """Number of test roots."""
    static: DelayedTree
    """Best fixed shape for the training roots of this sampling setting."""
    static_rate: float
    """Tokens per second with the fixed shape."""
    selected_rate: float
    """Tokens per second with the selector."""
    static_tokens: float
    """Tokens per round with the fixed shape."""
    selected_tokens: float
    """Tokens per round with the selector."""
    common: tuple[tuple[DelayedTree, float], ...]
    """Most frequently chosen shapes, each with its share of the roots."""

    @property
    def gain(self) -> float:
        """Ratio of the selector's speed to the speed of the fixed shape."""
        return self.selected_rate / self.static_rate


def predict(policy: Policy, verifier: str, roots: Roots, manifest: Manifest) -> list[Prediction]:
    """Predicted speeds of a selector for a verifier at the roots of the test prompts, for each sampling setting.

    Raises:
        ConfigError: No roots were labelled for this verifier, or there are too few prompts for a test part.
    """
    require(
        verifier in roots.tokens,
        f"no roots were labelled for {verifier}, only for {', '.join(roots.tokens)}; give another --data",
    )
    test, part_seconds = roots.part(TEST), roots.fastest(verifier)
    require(len(test) > 0, f"{manifest.prompts} prompts are too few for a test part; collect roots of more prompts")
    base = bases(roots.training(), verifier, round_seconds(part_seconds[None])[0])
    parts = []
    for setting, sampling in enumerate(manifest.plan.settings):
        at_setting = test.select(test.setting == setting)
        if len(at_setting) and setting in base:
            parts.append(_predict_setting(policy, verifier, at_setting, sampling, base[setting], part_seconds))
    return parts


def _predict_setting(
    policy: Policy, verifier: str, roots: Roots, sampling: Sampling, base: int, part_seconds: Tensor
) -> Prediction:
    tokens, seconds = roots.tokens[verifier].nan_to_num(0.0), round_seconds(part_seconds[None]).expand(len(roots), -1)
    actions, static = chosen(policy, roots, verifier, part_seconds), torch.full((len(roots),), base)
    common = Counter(actions.tolist()).most_common(COMMON)
    return Prediction(
        sampling=sampling,
        roots=len(roots),
        static=ACTIONS[base],
        static_rate=rate(tokens, seconds, static),
        selected_rate=rate(tokens, seconds, actions),
        static_tokens=float(tokens.gather(1, static[:, None]).mean()),
        selected_tokens=float(tokens.gather(1, actions[:, None]).mean()),
        common=tuple((ACTIONS[action], count / len(roots)) for action, count in common),
    )
