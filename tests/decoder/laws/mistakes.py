"""Engines with one mistake each, made by temporary patches; a test proves something only if it rejects them.

Wrong verifiers are those of `wrong_verifiers`. The other mistakes concern a verifier's inputs and results: random
numbers, rows, trees, positions, masks, and caches.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from decoder.draft import drawn_drafter
from decoder.draft import drawn_drafter as drawing
from decoder.forward.kv_cache import KvCache
from decoder.methods import delayed as method
from decoder.sampling.settings import Sampling
from decoder.sampling.truncation import probabilities, truncation_mask
from decoder.session.host import HostSession
from decoder.session.protocol import Outcome
from decoder.tree import TokenTree
from decoder.verify import independent
from decoder.verify.independent import IndependentVerifier
from decoder.verify.lossless import random_generator
from decoder.verify.lossless.batched import draw
from decoder.verify.lossless.drawn_tree import DrawnTree, draft_rows, drawn_tree
from decoder.verify.lossless.random_generator import PhiloxGenerator, RandomGenerator
from decoder.verify.lossless.top_down import Accepted
from decoder.verify.lossless.verifiers import VERIFIERS
from tests.decoder.laws.toy import Setting, drawn
from tests.decoder.verify.lossless.row_by_row import Verify
from tests.decoder.verify.lossless.wrong_verifiers import CHAIN, WRONG, Wrong

Change = Callable[[], AbstractContextManager[Any]]
"""A function that returns a patch as a context manager."""
PLAIN, COOL, NUCLEUS = Sampling(1.0), Sampling(0.6), Sampling(1.0, 0, 0.7)
ROOMY = 64
"""Number of rows of a cache from which no rows are removed."""
right_verify, right_reserve = IndependentVerifier.verify, HostSession._reserve


@dataclass(frozen=True)
class Mistake:
    """An engine with a mistake, and the setting that reveals it."""

    name: str
    setting: Setting
    change: Change
    texts: int = 5_000
    """Number of texts that suffice to reveal the mistake."""


def with_verifier(name: str, verify: Verify) -> Change:
    """Replaces the verifier `name` by a wrong one, which computes in float64."""

    def on_device(tree: DrawnTree, target_probs: Tensor, draft_probs: Tensor, generator: RandomGenerator) -> Accepted:
        return verify(tree, target_probs.double().numpy(), draft_probs.double().numpy(), generator)

    return lambda: patch.dict(VERIFIERS, {name: replace(VERIFIERS[name], on_device=on_device)})


def with_other(owner: Any, **others: Any) -> Change:
    """Patches attributes of an object."""
    return lambda: patch.multiple(owner, **others)


def with_all(*changes: Change) -> Change:
    """Combines several patches to one mistake."""

    @contextmanager
    def entered() -> Iterator[None]:
        with ExitStack() as stack:
            for change in changes:
                stack.enter_context(change())
            yield

    return entered


def few_seeds(seed: int, stream: int = 0) -> PhiloxGenerator:
    return PhiloxGenerator(seed % 50, stream)


def alike_each_round(own: IndependentVerifier, *given: Any) -> tuple[list[int], int]:
    begun_anew: Any = PhiloxGenerator(0)
    begun_anew._generator.bit_generator.state = key_of(own.generator)
    return right_verify(replace(own, generator=begun_anew), *given)


def key_of(generator: Any) -> dict[str, Any]:
    """State of a generator before its first number."""
    state = generator._generator.bit_generator.state
    fresh = PhiloxGenerator(0)._generator.bit_generator.state
    return {**fresh, "state": {**fresh["state"], "key": state["state"]["key"]}}


def at_another_temperature(tree: TokenTree, like: Tensor) -> Tensor:
    rows = draft_rows(tree, like).sqrt()
    return rows / rows.sum(-1, keepdim=True).clamp_min(1e-30)


def whole(logits: Tensor, settings: Sequence[Sampling]) -> Tensor:
    return probabilities(logits, [Sampling(each.temperature) for each in settings])


def not_renormalised(logits: Tensor, settings: Sequence[Sampling]) -> Tensor:
    return whole(logits, settings) * truncation_mask(logits.float(), settings[0])


def at_temperature_1(logits: Tensor, settings: Sequence[Sampling]) -> Tensor:
    return probabilities(logits, [Sampling(1.0)] * len(settings))


def from_the_nucleus(rows: Tensor, generator: RandomGenerator) -> Tensor:
    return draw(rows * truncation_mask(rows.log(), NUCLEUS), generator)


def most_probable(rows: Tensor, generator: RandomGenerator) -> Tensor:
    del generator
    return rows.argmax(-1)


def without_replacement(rows: Tensor, generator: RandomGenerator) -> Tensor:
    left, found = rows.clone(), list[Tensor]()
    for place, row in enumerate(rows):
        found.append(draw(left[place : place + 1], generator))
        left[(rows == row).all(-1), found[-1]] = 0
    return torch.cat(found)


def sorted_siblings(tree: TokenTree) -> DrawnTree:
    found = drawn_tree(tree)
    order = [sorted(drawn, key=lambda node: -tree.logprobs[node]) for drawn in found.children]
    return replace(found, children=tuple(map(tuple, order)))


def without_the_worst(tree: TokenTree) -> DrawnTree:
    """Drops the least probable of several drawn tokens."""
    found = drawn_tree(tree)
    worst = {min(drawn, key=lambda node: tree.logprobs[node]) for drawn in found.children if len(set(drawn)) > 1}
    left = [tuple(node for node in drawn if node not in worst) for drawn in found.children]
    return replace(found, children=tuple(left))


def rows_of_their_parents(
    own: IndependentVerifier, tree: TokenTree, logits: Tensor, first: int
) -> tuple[list[int], int]:
    return right_verify(own, tree, logits[[max(parent, 0) for parent in tree.parents]], first)


def in_a_line(own: HostSession, tree: TokenTree) -> Tensor:
    """Gives siblings consecutive positions."""
    positions = [own._root + node for node in range(len(tree))]
    return own._pair.target.forward(own.target_cache, tree.tokens, positions, tree.visible())


def all_before(tree: TokenTree) -> NDArray[np.bool_]:
    return np.tri(len(tree), dtype=np.bool_)


def in_place(cache: KvCache, rows: Sequence[int]) -> None:
    """Keeps the first rows instead of the accepted rows."""
    cache.length = cache.used = cache.length + len(rows)


def roomy(own: HostSession) -> None:
    right_reserve(own)
    own.target_cache.reserve(ROOMY)


def nothing_dropped(own: HostSession, outcome: Outcome) -> None:
    """Keeps refused nodes in the target's cache."""
    own.target_cache.length = own.target_cache.used
    assert own.proposer is not None
    own.proposer.commit(outcome.accepted[: len(outcome.committed)])
    own.text.extend(outcome.committed)


LINE, PAIR, TREE, BRANCHES, MANY, WIDE = (
    drawn("block", "iid", (1, 0, 2), PLAIN),
    drawn("traversal", "iid", (2, 0, 2), PLAIN),
    drawn("traversal", "delayed", (2, 1, 1), PLAIN),
    drawn("traversal", "iid", (3, 0, 2), PLAIN),
    drawn("traversal", "iid", (4, 0, 1), COOL),
    drawn("traversal", "iid", (4, 0, 2), COOL, "llama"),
)
RARE = ("traversal: the residual of naive", "traversal: duplicates left out")
"""Mistakes that are visible only if several draws after a node are refused or equal."""


def of_verifier(wrong: Wrong) -> Mistake:
    if wrong.shape == CHAIN:
        return Mistake(wrong.mistake, LINE, with_verifier("block", wrong.verify))
    change = with_verifier("traversal", wrong.verify)
    return (
        Mistake(wrong.mistake, MANY, change, 20_000) if wrong.mistake in RARE else Mistake(wrong.mistake, PAIR, change)
    )


MISTAKES = (
    *map(of_verifier, WRONG),
    Mistake("coins: the draft's", TREE, with_other(method, VERIFY_STREAM=method.DRAFT_STREAM)),
    Mistake("coins: of few seeds", TREE, with_other(random_generator, PhiloxGenerator=few_seeds)),
    Mistake("coins: alike each round", TREE, with_other(IndependentVerifier, verify=alike_each_round)),
    Mistake("draft rows: computed anew at another temperature", TREE,
            with_other(independent, draft_rows=at_another_temperature)),
    Mistake("draft rows: before top-p", drawn("traversal", "delayed", (2, 1, 1), NUCLEUS),
            with_all(with_other(drawing, draw=from_the_nucleus), with_other(drawn_drafter, probabilities=whole))),
    Mistake("target rows: top-p not renormalised", drawn("specinfer", "iid", (2, 0, 2), NUCLEUS),
            with_other(independent, probabilities=not_renormalised)),
    Mistake("target rows: no top-p", drawn("naive", "iid", (1, 0, 3), NUCLEUS),
            with_other(independent, probabilities=whole)),
    Mistake("target rows: no temperature", drawn("khisti", "iid", (2, 0, 2), COOL),
            with_other(independent, probabilities=at_temperature_1)),
    Mistake("target rows: those of the parents", TREE, with_other(IndependentVerifier, verify=rows_of_their_parents)),
    Mistake("drafting: the most probable token", TREE, with_other(drawing, draw=most_probable)),
    Mistake("drafting: without replacement", BRANCHES, with_other(drawing, draw=without_replacement)),
    Mistake("drafting: siblings sorted", BRANCHES, with_other(independent, drawn_tree=sorted_siblings)),
    Mistake("drafting: the worst draw dropped", BRANCHES, with_other(independent, drawn_tree=without_the_worst)),
    Mistake("positions: siblings in a line", WIDE, with_other(HostSession, _logits=in_a_line)),
    Mistake("mask: siblings see each other", WIDE, with_other(TokenTree, visible=all_before)),
    Mistake("cache: the first rows kept", MANY, with_other(KvCache, keep=in_place)),
    Mistake("cache: refused rows kept", WIDE, with_other(HostSession, _reserve=roomy, _commit=nothing_dropped)),
)  # fmt: skip
