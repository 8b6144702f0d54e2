"""A pair of models, with the costs and acceptance probabilities that all texts of the pair share. This module alone
decides whether the rounds of a text run on the host or in CUDA graphs.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from decoder.draft.tree_size.acceptance_model import AcceptanceModel
from decoder.draft.tree_size.controller import TreeSizeController
from decoder.draft.tree_size.cost_model import Costs
from decoder.draft.tree_size.cost_profile import measure_costs
from decoder.draft.tree_size.drafted_round import GREEDY_GAIN, SAMPLED_GAIN, LookupPauses
from decoder.forward.batch_invariant import refuse_float64
from decoder.forward.compiled.library import gumbel_on_host
from decoder.forward.language_model import LanguageModel
from decoder.forward.near_tie import Scorer
from decoder.models.compatibility import probe
from decoder.models.pair import Pair
from decoder.sampling.noise import DraftProbabilities, GumbelNoise
from decoder.sampling.settings import Schedule
from decoder.session.host import HostSession, with_drafter
from decoder.session.protocol import Session
from decoder.session.steering import KnobState
from decoder.system.cpu_threads import choose_threads
from decoder.verify.verifier import CoupledVerifier

if TYPE_CHECKING:
    from decoder.session.cuda_graph.slots import GraphSlots


@dataclass(frozen=True)
class Engine:
    """A pair of target and draft, ready to decode."""

    pair: Pair
    exact: bool = False
    """Whether the target is batch-invariant, so that every method writes exactly the text of plain decoding (`ar`)."""
    slots: "GraphSlots | None" = field(default=None, compare=False, repr=False)
    """KV caches and CUDA graphs for texts whose rounds run on the device; None without CUDA graphs."""
    costs: dict[int, Costs] = field(default_factory=dict, compare=False, repr=False)
    """Costs by text length; the key n, a power of two, stands for texts of n / 2 to n - 1 tokens."""
    acceptance: AcceptanceModel = field(default_factory=AcceptanceModel, compare=False, repr=False)
    """Acceptance probabilities in greedy decoding."""
    sampled_acceptance: AcceptanceModel = field(
        default_factory=functools.partial(AcceptanceModel, 1.0), compare=False, repr=False
    )
    """Acceptance probabilities in sampling with a draft that uses the target's sampling noise."""
    unknown_acceptance: AcceptanceModel = field(
        default_factory=functools.partial(AcceptanceModel, 1.0), compare=False, repr=False
    )
    """Acceptance probabilities in sampling with a draft that does not use the target's sampling noise."""
    scorer: Scorer = field(default_factory=Scorer, compare=False, repr=False)
    """State of the check for near ties, such as a loaded module; kept between texts while memory suffices."""
    draft_knows_noise: bool = True
    """Whether the draft uses the target's sampling noise; False for the verifier `nss`."""
    seed: int = 0
    sampling: Schedule = field(default_factory=Schedule, compare=False, repr=False)
    threads: int = field(default_factory=torch.get_num_threads, compare=False, repr=False)
    """Largest number of CPU threads that `settle_threads` may choose."""

    def session(self, prompt_ids: Sequence[int], max_new_tokens: int, knobs: KnobState | None) -> Session:
        """Opens a session for one text; if `knobs` is None, the session decodes token by token, without a draft. A
        session in CUDA graphs calls this method again when changed knobs no longer fit the shapes of the graphs.
        """
        by_cost = knobs is not None and knobs.rule.budget.by_cost
        if slots := self._slots_for(knobs):
            from decoder.draft.tree_size.plan_controller import PlanController
            from decoder.session.cuda_graph.session import session_class

            plans = PlanController(slots.costs, self._acceptance) if by_cost else None
            return session_class(self.pair, knobs)(
                self.pair, slots, prompt_ids, max_new_tokens, knobs, self.session, plans, self.sampling, self.seed
            )
        noise = self.gumbel_noise()
        pair, proposer = self.pair, None
        if knobs:
            length = len(prompt_ids)
            sizes = self._sizes(prompt_ids) if by_cost else None
            pair, proposer = with_drafter(pair, length + max_new_tokens, self.draft_probabilities(noise), sizes)
        return HostSession(pair, prompt_ids, max_new_tokens, knobs, proposer, CoupledVerifier(noise))

    def _sizes(self, prompt_ids: Sequence[int]) -> TreeSizeController:
        length = len(prompt_ids)
        pauses = LookupPauses(GREEDY_GAIN if self.sampling.greedy_from(length) else SAMPLED_GAIN)
        return TreeSizeController(self.costs_of(length), self._acceptance, prompt_ids, pauses)

    def prepare(self) -> str:
        """Does one part of the work that loading has left for idle time; must not be called while a session is open.
        Returns the progress in words, or an empty text if no work is left. Raises LostDeviceError.
        """
        return next(self.slots.pending, "") if self.slots else ""

    def _slots_for(self, knobs: KnobState | None) -> "GraphSlots | None":
        """Slots for a text with these knobs; None if the rounds of the text must run on the host."""
        by_host = self.exact or not self.draft_knows_noise or self.pair.translation
        if by_host or self.slots is None or self.slots.refused:
            return None
        from decoder.heads.eagle3 import only_on_host
        from decoder.session.cuda_graph.session import runs_on_device

        if only_on_host(self.pair.head):
            return None
        return self.slots if runs_on_device(self.pair, knobs.rule if knobs else None) else None

    def sampled(self, seed: int, sampling: Schedule, *, draft_knows_noise: bool = True) -> "Engine":
        return replace(self, seed=seed, sampling=sampling, draft_knows_noise=draft_knows_noise)

    def draft_probabilities(self, noise: GumbelNoise) -> DraftProbabilities:
        return noise if self.draft_knows_noise else DraftProbabilities(self.sampling)

    def gumbel_noise(self) -> GumbelNoise:
        return GumbelNoise(self.seed, self.sampling, self.pair.vocabulary, self.pair.target.device, gumbel_on_host)

    @property
    def _acceptance(self) -> AcceptanceModel:
        if self.sampling.latest.greedy:
            return self.acceptance
        return self.sampled_acceptance if self.draft_knows_noise else self.unknown_acceptance

    def costs_of(self, rows: int) -> Costs:
        """Costs in a text of `rows` tokens. All lengths from one power of two up to the next share one measurement."""
        size = 1 << max(rows, 1).bit_length()
        if size not in self.costs:
            self.costs[size] = measure_costs(self.pair, rows)
        return self.costs[size]

    def settle_threads(self) -> None:
        """On a CPU, chooses the number of threads by a trial under the machine's current load. Batch-invariant passes
        keep their number of threads, on which their sizes depend.
        """
        if self.pair.target.device.type != "cpu" or self.exact:
            return
        before = torch.get_num_threads()
        if choose_threads(functools.partial(_try_out, self.pair.target), self.threads) != before:
            self.costs.clear()

    def batch_invariant(self) -> "Engine":
        """This engine with a batch-invariant target, for `--exact`; costs are measured again. Raises ConfigError for
        float64, and PairError if the target has no batch-invariant form.
        """
        refuse_float64(self.pair.target.dtype)
        target = self.pair.target.exact()
        probe(target, plain=self.pair.target)
        return replace(self, pair=replace(self.pair, target=target), exact=True, costs={})

    def fastest(self) -> "Engine":
        """This engine with the fastest form of its target; costs are measured again."""
        return replace(self, pair=replace(self.pair, target=self.pair.target.inexact()), exact=False, costs={})


@torch.inference_mode()
def _try_out(model: LanguageModel, rows: int = 4) -> None:
    """One forward pass; by default with about as many rows as the verification of a small tree."""
    model.forward(model.new_cache(rows), [0] * rows, range(rows), np.tri(rows, dtype=np.bool_))
