"""A selector in a session: chooses the tree shape of each round of one text, before the round samples any token.

A choice needs the target's distribution from the previous round, so no shape is chosen for the first round of a text.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from decoder.draft.delayed_shape import ACTIONS, ONE_PATH, DelayedTree
from decoder.draft.draft_passes import DraftPasses
from decoder.draft.drawn_drafter import ShapeChoice
from decoder.errors import ConfigError
from decoder.models.checkpoints import EMBEDDED
from decoder.models.pair import Pair
from decoder.sampling.settings import Schedule
from decoder.sampling.truncation import probabilities
from decoder.selector.policy import (
    LOOKED_BACK,
    MAKE_ONE,
    OneRoot,
    Root,
    fingerprint,
    fits,
    read_info,
    read_selector,
    require_fits,
    scalars,
)

SHIPPED = EMBEDDED / "selectors"
"""The embedded pair's selectors."""
BOTTOM_UP = ("block", "traversal")
"""Verifiers that begin at the deepest nodes. Their best shapes are similar, and so are those of the other verifiers."""


def load(file: str, pair: Pair) -> dict[str, OneRoot]:
    """Selectors by the verifier for which each was trained; see `files`."""
    return {verifier: OneRoot(read_selector(path)[0]) for verifier, path in files(file, pair).items()}


def files(file: str, pair: Pair) -> dict[str, Path]:
    """Selector files by the verifier for which each was trained; without `file`, those that come with dynatui. `pair`
    is from `Pair.observed`. Raises ConfigError if there is no selector, or if it was trained for another pair.
    """
    if file:
        trained = read_info(Path(file))
        require_fits(Path(file), trained, pair)
        return {trained.verifier: Path(file)}
    own = fingerprint(pair)
    shipped = {path: read_info(path) for path in sorted(SHIPPED.glob("*.safetensors"))}
    named = {
        path: info for path, info in shipped.items() if (info.pair.target, info.pair.draft) == (own.target, own.draft)
    }
    fitting = {path: info for path, info in named.items() if fits(info.pair, own)}
    if not named:
        raise ConfigError(
            f"dynatui comes without a selector for the target {pair.target_name} and the draft {pair.draft_name}; "
            f"{MAKE_ONE}, and give its file with --selector"
        )
    if not fitting:
        require_fits(*next(iter(named.items())), pair)
    # If a verifier has two selectors, the later entry, which reads hidden rows, replaces the earlier one.
    return {fitting[path].verifier: path for path in sorted(fitting, key=lambda path: len(fitting[path].pair.hidden))}


class Chooser:
    """Chooses the shape of each round of one text."""

    def __init__(
        self,
        policies: Mapping[str, OneRoot],
        pair: Pair,
        schedule: Schedule,
        times: Callable[[], tuple[float, float]],
    ) -> None:
        """`policies` must not be empty; `pair` is from `Pair.observed`; `times` returns the seconds of a one-row pass
        of the draft and of the target, and is called once, when needed.
        """
        self.pair = pair
        self._policies = policies
        self._schedule = schedule
        self._times = times
        self._impossible = torch.tensor([not is_one_path for is_one_path in ONE_PATH])
        self._before: tuple[Tensor, Tensor | None] | None = None

    def observe(self, target_probs: Float[Tensor, "N V"], node: int) -> None:
        """Records the target's distribution after the last accepted node, from which the next root is sampled."""
        hidden = self.pair.target.hidden
        self._before = target_probs[node], None if hidden is None else hidden[node]

    def choose(self, draft: DraftPasses, text: Sequence[int], verifier: str) -> ShapeChoice | None:
        """The shape of the tree below the text's last token; None before the target's first pass."""
        if self._before is None:
            return None
        logits, positions = draft.again_after(text, LOOKED_BACK)
        rows = probabilities(logits, [self._schedule.at(position) for position in positions])
        before, hidden = self._before
        hidden_rows = () if hidden is None or draft.hidden is None else (hidden, *draft.hidden.unbind())
        root = Root(before, rows[0], rows[1], hidden_rows, len(text), self._schedule.at(len(text)))
        return ShapeChoice(self.best(root, verifier), logits[-1:])

    def best(self, root: Root, verifier: str) -> DelayedTree:
        policy = self._policy(verifier)
        hidden = [row.float().cpu() for row in root.hidden] if policy.hidden_widths else []
        scores = policy(hidden, scalars(root, *self._seconds))
        if verifier == "block":
            scores = scores.masked_fill(self._impossible, -torch.inf)
        return ACTIONS[int(scores.argmax())]

    @cached_property
    def _seconds(self) -> tuple[float, float]:
        # Cached, since the measurement takes long.
        return self._times()

    def _policy(self, verifier: str) -> OneRoot:
        """The policy for the verifier; if there is none, a policy for a similar verifier, or else any policy."""
        alike = [name for name in self._policies if (name in BOTTOM_UP) == (verifier in BOTTOM_UP)]
        return self._policies.get(verifier) or self._policies[[*alike, *self._policies][0]]
