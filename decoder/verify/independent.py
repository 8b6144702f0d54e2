"""Independent sampling: the draft and the lossless verifier use random numbers from two separate generators.

The text has the target's distribution. This module is independent of methods: the caller passes a function that names
the verifier of each round.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jaxtyping import Float
from msgspec import structs
from torch import Tensor

from decoder.events import Verification
from decoder.forward.token_choice import require_choices
from decoder.sampling.settings import Schedule
from decoder.sampling.truncation import probabilities
from decoder.tree import TokenTree
from decoder.verify.lossless.drawn_tree import draft_rows, drawn_tree
from decoder.verify.lossless.random_generator import RandomGenerator
from decoder.verify.lossless.verifiers import MOST_NUMBERS, VERIFIERS, tree_statistics
from decoder.verify.verifier import Verifier, token_statistics


@dataclass(frozen=True)
class IndependentVerifier(Verifier):
    """Applies a lossless verifier to trees that were sampled from the draft."""

    verifier: Callable[[], str]
    """Returns the name of the round's verifier, which must be lossless for the round's kind of tree."""
    schedule: Schedule
    generator: RandomGenerator
    observe: Callable[[Float[Tensor, "N V"], int], None] | None = None
    """Called in each round with the target's probabilities after all nodes, and the last accepted node."""

    def verify(self, tree: TokenTree, logits: Float[Tensor, "N V"], first: int) -> tuple[list[int], int]:
        """Raises LogitsError as `Verifier` does, and ModelError if a probability is NaN."""
        require_choices(logits)
        target_probs = self._target_probs(tree, logits, first)
        verify = VERIFIERS[self.verifier()].on_device
        path, token = verify(drawn_tree(tree), target_probs, draft_rows(tree, target_probs), self.generator)
        if self.observe:
            self.observe(target_probs, path[-1] if path else 0)
        return path, token

    def statistics(
        self, tree: TokenTree, logits: Float[Tensor, "N V"], first: int, path: Sequence[int], committed: Sequence[int]
    ) -> Verification | None:
        """Statistics of a round; for large trees or vocabularies, only the statistics of the committed tokens."""
        if self.schedule.greedy_from(first):
            return None
        target_probs = self._target_probs(tree, logits, first)
        statistics = token_statistics(target_probs[[0, *path][: len(committed)]], committed)
        if target_probs.numel() > MOST_NUMBERS:
            return statistics
        target, draft = (probs.double().cpu().numpy() for probs in (target_probs, draft_rows(tree, target_probs)))
        reach, draws = tree_statistics(self.verifier(), drawn_tree(tree), target, draft, path)
        return structs.replace(statistics, predicted_tokens=sum(reach), reach=reach, path=draws)

    def _target_probs(self, tree: TokenTree, logits: Float[Tensor, "N V"], first: int) -> Float[Tensor, "N V"]:
        return probabilities(logits, [self.schedule.at(first + depth) for depth in tree.depths])
