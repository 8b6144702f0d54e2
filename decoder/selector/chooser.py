"""A selector at work: the shape of each round of one text, from what the models have said before its first draw.

What the target says comes from the round before, so the first round of a text has no choice made for it.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from decoder.draft.delayed_shape import DelayedTree
from decoder.draft.draft_passes import DraftPasses
from decoder.draft.drawn_drafter import ShapeChoice
from decoder.errors import ConfigError
from decoder.models.checkpoints import EMBEDDED
from decoder.models.pair import Pair
from decoder.sampling.probabilities import probabilities
from decoder.sampling.settings import Schedule
from decoder.selector.actions import ACTIONS, ONE_PATH
from decoder.selector.features import LOOKED_BACK, Root, scalars
from decoder.selector.one_root import OneRoot
from decoder.selector.stored import MAKE_ONE, about, fingerprint, fits, read, require_fits

SHIPPED = EMBEDDED / "selectors"
"""Those of the embedded pair."""
BOTTOM_UP = ("block", "traversal")
"""Verifiers whose shapes resemble each other more than those of the others."""


def load(file: str, pair: Pair) -> dict[str, OneRoot]:
    """The selectors of an observed pair, by the verifier that they were trained for; see `files`."""
    return {verifier: OneRoot(read(path)[0]) for verifier, path in files(file, pair).items()}


def files(file: str, pair: Pair) -> dict[str, Path]:
    """The files of an observed pair's selectors, by the verifier that they were trained for.

    Args:
        file: Of a selector; empty: those that come with dynatui.
        pair: What it must have been trained for.

    Raises:
        ConfigError: There is none, or it is another pair's.
    """
    if file:
        trained = about(Path(file))
        require_fits(Path(file), trained, pair)
        return {trained.verifier: Path(file)}
    own = fingerprint(pair)
    shipped = [(path, about(path)) for path in sorted(SHIPPED.glob("*.safetensors"))]
    found = [(path, trained) for path, trained in shipped if fits(trained.pair, own)]
    for path, trained in shipped:
        if not found and (trained.pair.target, trained.pair.draft) == (own.target, own.draft):
            require_fits(path, trained, pair)
    if not found:
        raise ConfigError(
            f"no selector comes with dynatui for {pair.target_name} with {pair.draft_name}; {MAKE_ONE}, and give it by "
            "--selector"
        )
    # Of two for one verifier, the one that goes by more.
    return {each.verifier: path for path, each in sorted(found, key=lambda one: len(one[1].pair.hidden))}


class Chooser:
    """Chooses the shapes of one text."""

    def __init__(
        self,
        policies: Mapping[str, OneRoot],
        pair: Pair,
        schedule: Schedule,
        times: Callable[[], tuple[float, float]],
    ) -> None:
        """Takes selectors by verifier, one at least, and an observed pair.

        `times` tells the seconds of a draft pass and of a target pass of one row, once they are needed.
        """
        self.pair = pair
        self._policies = policies
        self._schedule = schedule
        self._times = times
        self._impossible = torch.tensor([not one for one in ONE_PATH])
        self._before: tuple[Tensor, Tensor | None] | None = None

    def seen(self, target_probs: Float[Tensor, "N V"], node: int) -> None:
        """Takes note of what the target says after the node that the next root is chosen at."""
        hidden = self.pair.target.hidden
        self._before = target_probs[node], None if hidden is None else hidden[node]

    def choose(self, draft: DraftPasses, text: Sequence[int], verifier: str) -> ShapeChoice | None:
        """What to draw below the last token of a text; None as long as the target has said nothing."""
        if self._before is None:
            return None
        logits, positions = draft.again_after(text, LOOKED_BACK)
        rows = probabilities(logits, [self._schedule.at(position) for position in positions])
        before, hidden = self._before
        seen = () if hidden is None or draft.hidden is None else (hidden, *draft.hidden.unbind())
        root = Root(before, rows[0], rows[1], seen, len(text), self._schedule.at(len(text)))
        return ShapeChoice(self.best(root, verifier), logits[-1:])

    def best(self, root: Root, verifier: str) -> DelayedTree:
        """The shape of the largest score."""
        scores = self._scores(self._policy(verifier), root)
        if verifier == "block":
            scores = scores.masked_fill(self._impossible, -torch.inf)
        return ACTIONS[int(scores.argmax())]

    @cached_property
    def _seconds(self) -> tuple[float, float]:
        # Asked once: measuring takes long.
        return self._times()

    def _scores(self, policy: OneRoot, root: Root) -> Float[Tensor, "A"]:
        hidden = [row.float().cpu() for row in root.hidden] if policy.hidden_widths else []
        return policy(hidden, scalars(root, *self._seconds))

    def _policy(self, verifier: str) -> OneRoot:
        """The one for a verifier, or for the one that is most like it."""
        alike = [name for name in self._policies if (name in BOTTOM_UP) == (verifier in BOTTOM_UP)]
        names = [name for name in (verifier, *alike, *self._policies) if name in self._policies]
        return self._policies[names[0]]
