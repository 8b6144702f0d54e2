"""Self-test: rounds on this device must equal rounds driven by the host before any user's text depends on them.

Drivers, kernels and versions of torch differ in what they can capture. Where a few short texts fail, or differ by more
than near ties, the pair goes on with rounds from the host, and says why.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoder.device import release_memory, without_gradients
from decoder.draft.tree_size.acceptance_model import AcceptanceModel
from decoder.draft.tree_size.cost_model import PlanCosts
from decoder.draft.tree_size.plan_controller import PlanController
from decoder.errors import first_line
from decoder.forward.cpu.packed import HALF
from decoder.forward.language_model import LanguageModel
from decoder.forward.near_tie import verdict
from decoder.forward.static.static_forward import static_in_place
from decoder.models.pair import Pair
from decoder.sampling.gumbel_noise import GumbelNoise
from decoder.sampling.settings import Sampling, Schedule
from decoder.session.cuda_graph.draft import Side
from decoder.session.cuda_graph.session import GraphSession
from decoder.session.cuda_graph.slots import BEYOND, GraphSlots, new_store, read
from decoder.session.cuda_graph.static_shapes import slots
from decoder.session.host import HostSession
from decoder.session.knob_state import KnobState
from decoder.session.protocol import Session
from decoder.tree_rules import Rules
from decoder.verify.coupled import CoupledVerifier
from decoder.verify.greedy import GreedyVerifier

PROMPTS = ((1, 2, 3, 4, 5, 6), (6, 4, 2, 5, 3, 1), (2, 2, 5, 5, 3, 3))
"""The next one is decoded where a text ended in a near tie, after which it says nothing."""
SAMPLED = Sampling(temperature=1.0, top_k=50, top_p=0.95)
"""Each rule samples one text too, by all that a graph can do to logits: drafts and verifications are then others."""
SEED = 1
TOKENS = 6
FAR, FAR_IN_HALF = 1e-3, 0.1
"""Two ways of computing give logits that differ by no more, as a share of the largest."""


@dataclass(frozen=True)
class Reference:
    """The host's text after a prompt, and both models' logits for each of its tokens."""

    prompt: Sequence[int]
    text: Sequence[int]
    target: Float[Tensor, "P V"]
    """Logits after each token of both but the last."""
    draft: Float[Tensor, "P V"]
    sampling: Sampling
    """Sampling settings of its tokens."""

    @property
    def tokens(self) -> Sequence[int]:
        """The tokens that the logits follow."""
        return [*self.prompt, *self.text[:-1]]

    def tie(self, found: Sequence[int], error: float) -> bool:
        """Whether the first token that differs is a near tie, for logits that may be off by `error`."""
        first, vocabulary = len(self.prompt), self.target.shape[1]
        noise = GumbelNoise(SEED, Schedule(self.sampling), vocabulary, self.target.device)
        for position, rivals in enumerate(zip(self.text, found, strict=False), first):
            if rivals[0] != rivals[1]:
                return verdict(self.target[position - 1], rivals, error, position, noise).near_tie
        return False


def prepare_rounds(pair: Pair, graph_slots: GraphSlots, tried: Sequence[Rules | None]) -> str | None:
    """Makes the forms of both models that rounds on the device run by, and tries them.

    Returns why rounds cannot run there; everything is then as it was before. None: they can.
    """
    try:
        right = references(pair)
        for model in pair.models.values():
            if graph_slots.form(model) is None:
                graph_slots.run(model, static_in_place(model))
        refused = refusal(pair, graph_slots, tried, right)
    except Exception as error:  # noqa: BLE001 - whatever a model, a driver or torch objects to, the host can go on
        refused = first_line(error)
    if refused:
        # What was made must be gone before modules come back.
        graph_slots.forget()
        for model in pair.models.values():
            model.drop_forward()
        release_memory(pair.target.device)
        for model in pair.models.values():
            model.run_by_module()
    return refused


@torch.inference_mode()
def references(pair: Pair) -> list[Reference]:
    """References from the host's rounds, by both models' present forward forms."""
    return [_reference(pair, prompt, sampling) for sampling in (Sampling(), SAMPLED) for prompt in PROMPTS]


def _reference(pair: Pair, prompt: Sequence[int], sampling: Sampling) -> Reference:
    noise = GumbelNoise(SEED, Schedule(sampling), pair.vocabulary, pair.target.device)
    text = _text(HostSession(pair, prompt, TOKENS, None, None, CoupledVerifier(noise)))
    target, draft = (_logits(model, [*prompt, *text[:-1]], pair.vocabulary) for model in pair.models.values())
    return Reference(prompt, text, target, draft, sampling)


def refusal(
    pair: Pair, graph_slots: GraphSlots, tried: Sequence[Rules | None], right: Sequence[Reference] | None = None
) -> str | None:
    """Why rounds cannot run on this pair's device; None: they can.

    None among the parameters that are tried: rounds without a draft. Without `right`, the host's rounds tell it now.
    """
    try:
        right = right or references(pair)
        errors = {}
        for role, model in pair.models.items():
            wanted = [getattr(reference, role) for reference in right]
            errors[role], largest = _error(pair, graph_slots, model, right, wanted)
            allowed = largest * (FAR_IN_HALF if model.dtype in HALF else FAR)
            if not errors[role] <= allowed:  # NaN fails too
                return f"the {role}'s logits differ by {errors[role]:.2g}, where the largest is {largest:.2g}"
            errors[role] = max(errors[role], largest * torch.finfo(model.dtype).eps)
        greedy = [each for each in right if each.sampling.greedy]
        sampled = [each for each in right if not each.sampling.greedy]
        trials = ((rules, texts) for texts in (greedy, sampled) for rules in tried)
        return next(filter(None, (_differing(pair, graph_slots, *trial, errors["target"]) for trial in trials)), None)
    except Exception as error:  # noqa: BLE001 - see above
        return first_line(error)


def _differing(
    pair: Pair, graph_slots: GraphSlots, rules: Rules | None, right: Sequence[Reference], error: float
) -> str | None:
    """How rounds on the device differ from the references; None: not at all, but for near ties."""
    for reference in right:
        knobs = KnobState(rules) if rules else None
        without_draft = functools.partial(HostSession, pair, proposer=None, verifier=GreedyVerifier())
        # What greedy rounds take is where texts begin; sampled ones take longer.
        costs = graph_slots.costs if reference.sampling.greedy else PlanCosts()
        sizes = PlanController(costs, AcceptanceModel()) if knobs and knobs.rule.budget.by_cost else None
        opened = pair, graph_slots, reference.prompt, TOKENS, knobs, without_draft, sizes
        found = _text(GraphSession(*opened, Schedule(reference.sampling), SEED))
        if found == reference.text:
            return None
        if not reference.tie(found, error):
            return f"they wrote the tokens {found} instead of {reference.text}"
    return None


@without_gradients()
def _error(
    pair: Pair,
    graph_slots: GraphSlots,
    model: LanguageModel,
    right: Sequence[Reference],
    wanted: Sequence[Float[Tensor, "P V"]],
) -> tuple[float, float]:
    """Largest error of logits on the device, and the largest right logit."""
    form = graph_slots.forward(model)
    found = []
    for tokens in (reference.tokens for reference in right):
        side = Side(form, new_store(form, slots(len(tokens)) + BEYOND), pair.vocabulary, pair.context)
        found.append(read(side, tokens).float())
    worst = max(float((one - other).abs().max()) for one, other in zip(found, wanted, strict=True))
    return worst, max(float(logits.abs().max()) for logits in wanted)


def _logits(model: LanguageModel, tokens: Sequence[int], vocabulary: int) -> Float[Tensor, "P V"]:
    rows = range(len(tokens))
    visible = np.tri(len(tokens), dtype=np.bool_)
    return model.forward(model.new_cache(len(tokens)), tokens, rows, visible)[:, :vocabulary].float()


def _text(session: Session) -> Sequence[int]:
    session.prefill()
    text: list[int] = []
    try:
        while True:
            outcome = session.step(())
            text += outcome.committed
            if outcome.finished:
                return text
    finally:
        session.close()
