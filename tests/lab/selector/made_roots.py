"""Labelled roots and draws without a model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decoder.draft.delayed_shape import ACTIONS, MOST, DelayedTree, action_number
from decoder.sampling.settings import Sampling
from decoder.selector import latency
from decoder.selector.policy import SCALARS, Fingerprint
from decoder.tree import TokenTree
from decoder.verify.lossless.random_generator import PhiloxGenerator
from dynatui.lab.bench.labels import RootDraws, shared_draws
from dynatui.lab.selector.collect import FORMAT, CollectionPlan, Manifest, Roots

PAIR = Fingerprint("big", "small", 8, (4, 3, 3))
SHORT, LONG = DelayedTree(1, 0, 1), DelayedTree(4, 2, 6)


@dataclass(frozen=True)
class MadeDraft:
    """A draft model with these logits after an unknown text, by their number, and after nodes of a tree."""

    after_text: Callable[[int], Tensor]
    after_nodes: Callable[[TokenTree, Sequence[int]], Tensor]

    def begin_tree(self) -> None:
        pass

    def commit(self, path: Sequence[int]) -> None:
        pass

    def again_after(self, _text: Sequence[int], latest: int) -> tuple[Tensor, list[int]]:
        return self.after_text(latest), []

    def after_level(self, tree: TokenTree, nodes: Sequence[int]) -> tuple[Tensor, list[int]]:
        return self.after_nodes(tree, nodes), []


def random_draws(seed: int, vocabulary: int = 4, most: DelayedTree = MOST) -> RootDraws:
    """The vocabulary is small, so that rollouts share nodes."""
    generator = torch.Generator().manual_seed(seed)

    def logits(rows: int) -> Tensor:
        return torch.randn(rows, vocabulary, generator=generator)

    draft: Any = MadeDraft(logits, lambda _, nodes: logits(len(nodes)))
    draws = shared_draws(draft, [1, 2], Sampling(1.0), most, PhiloxGenerator(seed))
    target = logits(len(draws.tree)).softmax(-1).double().numpy()
    rows = np.zeros_like(target)
    for node, drawn in (draws.tree.draws or {}).items():
        rows[node] = drawn.row.double().numpy()
    inner = sorted(draws.tree.draws or {})
    # The target resembles its draft to varying degrees, and equals it at some nodes.
    target[inner[::3]] = 0.2 * target[inner[::3]] + 0.8 * rows[inner[::3]]
    target[inner[::7]] = rows[inner[::7]]
    return RootDraws(draws, target, rows)


def manifest(prompts: int = 20) -> Manifest:
    return Manifest(FORMAT, PAIR, CollectionPlan(("specinfer",), (0.5, 1.0)), prompts, "made")


def made_roots(count: int = 1200, prompts: int = 20, seed: int = 0) -> Roots:
    """Roots at which one of two shapes is far better, as indicated by the draft's entropy."""
    generator = torch.Generator().manual_seed(seed)
    scalars = torch.randn(count, len(SCALARS), generator=generator)
    unsure = scalars[:, 2] > 0
    tokens = torch.ones(count, len(ACTIONS))
    tokens[:, action_number(SHORT)] = 2.0
    tokens[:, action_number(LONG)] = torch.where(unsure, 1.2, 6.0)
    parts = torch.zeros(latency.SIZE)
    parts[latency.READ], parts[latency.DRAFT], parts[latency.VERIFY] = 1e-3, 1e-3, 1e-2
    hidden = {
        f"hidden.{place}": torch.randn(count, width, generator=generator) for place, width in enumerate(PAIR.hidden)
    }
    numbers = torch.arange(count)
    at = {"scalars": scalars, "prompt": numbers % prompts, "setting": numbers // prompts % 2}
    return Roots({**hidden, **at, "tokens.specinfer": tokens, "latency.specinfer": parts.repeat(count, 1)})
