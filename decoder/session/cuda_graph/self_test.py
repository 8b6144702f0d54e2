"""Whether rounds on this device are what rounds driven by the host are: tried before any user's text depends on them.

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
from decoder.draft.tree_size.plan_controller import PlanController
from decoder.errors import first_line
from decoder.forward.cpu.packed import HALF
from decoder.forward.language_model import LanguageModel
from decoder.forward.static.static_forward import static_in_place
from decoder.models.pair import Pair
from decoder.session.cuda_graph.draft import Side
from decoder.session.cuda_graph.session import GraphSession
from decoder.session.cuda_graph.slots import BEYOND, GraphSlots, new_store, read
from decoder.session.cuda_graph.static_shapes import slots
from decoder.session.host import model_session
from decoder.session.knob_state import KnobState
from decoder.session.protocol import Session
from decoder.tree_rules import Rules
from decoder.verify.greedy import Greedy

PROMPTS = ((1, 2, 3, 4, 5, 6), (6, 4, 2, 5, 3, 1), (2, 2, 5, 5, 3, 3))
"""The next one is decoded where a text ended in a near tie, after which it says nothing."""
TOKENS = 6
FAR, FAR_IN_HALF = 1e-3, 0.1
"""Two ways of computing give logits that differ by no more, as a share of the largest."""


@dataclass(frozen=True)
class Reference:
    """What the host's rounds write after a prompt, and what both models say of each token of it."""

    prompt: Sequence[int]
    text: Sequence[int]
    target: Float[Tensor, "P V"]
    """Logits after each token of both but the last."""
    draft: Float[Tensor, "P V"]

    @property
    def tokens(self) -> Sequence[int]:
        """What the logits follow."""
        return [*self.prompt, *self.text[:-1]]

    def tie(self, found: Sequence[int], error: float) -> bool:
        """Whether the first token that differs is a near tie, for logits that may be off by `error`."""
        for scores, right, other in zip(self.target[len(self.prompt) - 1 :], self.text, found, strict=False):
            if right != other:
                return bool(scores[right] - scores[other] <= 2 * error)
        return False


def prepare_rounds(pair: Pair, graph_slots: GraphSlots, tried: Sequence[Rules | None]) -> str | None:
    """Makes the forms of both models that rounds on the device run by, and tries them.

    Returns why rounds cannot run there; everything is then as it was before. None: they can.
    """
    try:
        right = references(pair)
        for model in (pair.target, pair.draft):
            if graph_slots.form(model) is None:
                graph_slots.run(model, static_in_place(model))
        refused = refusal(pair, graph_slots, tried, right)
    except Exception as error:  # noqa: BLE001 - whatever a model, a driver or torch objects to, the host can go on
        refused = first_line(error)
    if refused:
        # What was made must be gone before modules come back.
        graph_slots.forget()
        for model in (pair.target, pair.draft):
            model.drop_forward()
        release_memory(pair.target.device)
        for model in (pair.target, pair.draft):
            model.run_by_module()
    return refused


@torch.inference_mode()
def references(pair: Pair) -> list[Reference]:
    """What the host's rounds write, as both models run now."""
    found = []
    for prompt in PROMPTS:
        text = _text(model_session(pair, prompt, TOKENS, None))
        target, draft = (_logits(model, [*prompt, *text[:-1]], pair.vocabulary) for model in (pair.target, pair.draft))
        found.append(Reference(prompt, text, target, draft))
    return found


def refusal(
    pair: Pair, graph_slots: GraphSlots, tried: Sequence[Rules | None], right: Sequence[Reference] | None = None
) -> str | None:
    """Why rounds cannot run on this pair's device; None: they can.

    None among the parameters that are tried: rounds without a draft. Without `right`, the host's rounds tell it now.
    """
    try:
        right = right or references(pair)
        errors = {}
        for role, model in (("target", pair.target), ("draft", pair.draft)):
            wanted = [getattr(reference, role) for reference in right]
            errors[role], largest = _error(pair, graph_slots, model, right, wanted)
            allowed = largest * (FAR_IN_HALF if model.dtype in HALF else FAR)
            if not errors[role] <= allowed:  # what is no number is not within it either
                return f"the {role}'s logits differ by {errors[role]:.2g}, where the largest is {largest:.2g}"
            errors[role] = max(errors[role], largest * torch.finfo(model.dtype).eps)
        return next(
            filter(None, (_differing(pair, graph_slots, rules, right, errors["target"]) for rules in tried)), None
        )
    except Exception as error:  # noqa: BLE001 - see above
        return first_line(error)


def _differing(
    pair: Pair, graph_slots: GraphSlots, rules: Rules | None, right: Sequence[Reference], error: float
) -> str | None:
    """How rounds on the device differ from what is right; None: they write it, but for near ties."""
    for reference in right:
        knobs = KnobState(rules) if rules else None
        on_host = functools.partial(model_session, pair)
        sizes = PlanController(graph_slots.costs, AcceptanceModel()) if knobs and knobs.rule.by_cost else None
        found = _text(GraphSession(pair, graph_slots, reference.prompt, TOKENS, knobs, on_host, Greedy(), sizes))
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
    """By how much logits on the device are off at most, and the largest of those that are right."""
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
