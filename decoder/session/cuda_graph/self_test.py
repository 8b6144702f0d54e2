"""Self-test: before any user's text is decoded by rounds on the device, these rounds must write the same test texts as
rounds driven by the host.

Which work can be captured depends on drivers, kernels and the version of torch. The test decodes a few short texts on
the device. If decoding fails, or the tokens differ from the host's tokens at a position without a near tie, the host
drives all rounds of the pair, and the reason is reported.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoder.draft.tree_size.acceptance_model import AcceptanceModel
from decoder.draft.tree_size.cost_model import PlanCosts
from decoder.draft.tree_size.plan_controller import PlanController
from decoder.errors import LostDeviceError, first_line
from decoder.forward.language_model import LanguageModel, fitted
from decoder.forward.linear import HALF
from decoder.forward.near_tie import near_tie_verdict
from decoder.forward.static_forward import static_in_place
from decoder.models.pair import Pair
from decoder.sampling.noise import GumbelNoise
from decoder.sampling.settings import Sampling, Schedule
from decoder.session.cuda_graph.draft import side_of
from decoder.session.cuda_graph.kernel_trial import trial
from decoder.session.cuda_graph.operators import PLAIN, Verdict, VerdictFile, releases, source_digest
from decoder.session.cuda_graph.session import runs_on_device, session_class
from decoder.session.cuda_graph.slots import BEYOND, GraphSlots, new_store, read_logits
from decoder.session.cuda_graph.static_shapes import slots, uncaptured
from decoder.session.host import HostSession
from decoder.session.protocol import Session
from decoder.session.steering import KnobState
from decoder.system.device import device_name, release_memory, require_working, without_gradients
from decoder.tree_rules import Rules, tree_rule
from decoder.verify.verifier import CoupledVerifier, GreedyVerifier

PROMPTS = ((1, 2, 3, 4, 5, 6), (6, 4, 2, 5, 3, 1), (2, 2, 5, 5, 3, 3))
"""If a text differs from the reference at a near tie, the text of the next prompt is compared."""
REPEATED = 3
"""Number of repetitions of each prompt if drafts come from suffix lookup."""
SAMPLED = Sampling(temperature=1.0, top_k=50, top_p=0.95)
"""Settings that need all operations on logits that graphs may contain."""
SEED = 1
TOKENS = 6
FAR, FAR_IN_HALF = 1e-3, 0.1
"""Allowed error of logits, as a share of the largest logit, in float32 and in half precision."""
TESTING = "testing rounds with kernels"
LATER = PLAIN.told("all parts", Verdict("are plain functions; kernels are tried between prompts", settled=False))
"""Operators until the trial of kernels, which is left for idle time, has run."""
Report = Callable[[str], None]


@dataclass(frozen=True)
class Reference:
    """A prompt, the text that rounds on the host wrote after it, and the models' logits after the tokens of both."""

    prompt: Sequence[int]
    text: Sequence[int]
    target: Float[Tensor, "P V"]
    """The target's logits after each of `tokens`."""
    draft: Float[Tensor, "P W"] | None
    """The draft model's logits over the ids that it shares with the target; None without a draft model."""
    sampling: Sampling

    @property
    def tokens(self) -> Sequence[int]:
        """Prompt and text, without the text's last token, after which no logits were computed."""
        return [*self.prompt, *self.text[:-1]]

    def tie(self, text: Sequence[int], error: float) -> bool:
        """Whether the first difference from `text` is at a near tie, if logits have errors of up to `error`."""
        first, vocabulary = len(self.prompt), self.target.shape[1]
        noise = GumbelNoise(SEED, Schedule(self.sampling), vocabulary, self.target.device)
        for position, rivals in enumerate(zip(self.text, text, strict=False), first):
            if rivals[0] != rivals[1]:
                return near_tie_verdict(self.target[position - 1], rivals, error, position, noise).near_tie
        return False


def prepare_rounds(
    pair: Pair,
    graph_slots: GraphSlots,
    tried: Sequence[Rules | None],
    report: Report = lambda _: None,
    folder: Path | None = None,
) -> str | None:
    """Makes the static forward forms of both models for rounds on the device, chooses the rounds' operators, and tests
    rounds with them.

    `report` is called after each trial of a kernel, and before rounds with kernels are tested. The verdicts of trials
    are kept in `folder`, if it is not None. If `graph_slots.kernels_later` is set and no verdict is known, rounds are
    tested without kernels, and the trial is left in `graph_slots.pending`.

    Returns None if rounds can run on the device. Otherwise switches both models back to their Hugging Face modules, and
    returns the reason why rounds cannot run on the device.

    Raises:
        LostDeviceError: The device has failed, so the modules cannot run on it either.
    """
    try:
        right = references(pair)
        for model in pair.models.values():
            if graph_slots.forms.get(model) is None:
                graph_slots.forms[model] = static_in_place(model)
        reasons = (uncaptured(graph_slots.forward(model).windows) for model in pair.models.values())
        refused = next(filter(None, reasons), None) or _refusal_with_kernels(
            pair, graph_slots, tried, right, report, _verdict_file(pair, tried, folder)
        )
    except LostDeviceError:
        raise
    except Exception as error:  # noqa: BLE001 - if anything fails on the device, the host drives the rounds
        refused = first_line(error)
    if refused:
        require_working(pair.target.device)
        # The weights of the static forms must be freed before the Hugging Face modules are loaded again.
        graph_slots.forget()
        for model in pair.models.values():
            model.drop_forward()
        release_memory(pair.target.device)
        for model in pair.models.values():
            model.run_by_module()
    return refused


def _refusal_with_kernels(
    pair: Pair,
    graph_slots: GraphSlots,
    tried: Sequence[Rules | None],
    right: Sequence[Reference],
    report: Report,
    file: VerdictFile,
) -> str | None:
    """Result of `refusal` for rounds with the kernels that a trial chooses now or chose earlier. If these rounds fail,
    or the trial is left for later, the result for rounds without kernels.
    """
    if graph_slots.kernels:
        words = _trial(pair, graph_slots, tried, right, file)
        if graph_slots.kernels_later and not file.read():
            graph_slots.operators = LATER
            refused = refusal(pair, graph_slots, tried, right)
            graph_slots.pending = iter(()) if refused else words
            return refused
        for told, _ in itertools.groupby(words):
            report(told)
        if graph_slots.operators.kernels:
            return None
    return refusal(pair, graph_slots, tried, right)


def _trial(
    pair: Pair,
    graph_slots: GraphSlots,
    tried: Sequence[Rules | None],
    right: Sequence[Reference],
    file: VerdictFile,
) -> Iterator[str]:
    """Tries kernels and tests rounds with the chosen kernels, in separate slots, which `graph_slots` takes over if the
    test succeeds. Each step does a small part of the work, and yields the progress in words. Raises LostDeviceError
    if the device has failed.
    """
    own, refused = graph_slots.beside(), None
    yield from trial(pair, own, tried, file.read())
    if own.operators.kernels:
        yield TESTING
        for refused in refusals(pair, own, tried, right):
            if refused:
                break
            yield TESTING
    require_working(pair.target.device)
    if refused:
        file.write({})
        graph_slots.operators = own.operators.without_kernels(refused)
    else:
        file.write(own.operators.verdicts)
        graph_slots.take_over(own)


def _verdict_file(pair: Pair, tried: Sequence[Rules | None], folder: Path | None) -> VerdictFile:
    models = (
        f"{role}: {model.architecture}, {model.layers} layers, {model.width} tokens, {model.context} positions, "
        f"{model.precision}, {model.dtype}"
        for role, model in pair.models.items()
    )
    drafting = f"draft: {pair.head.kind if pair.head else pair.looks_up}, {pair.draft_dtype}"
    device = str(device_name(pair.target.device))
    return VerdictFile(folder, (device, *releases(), *models, drafting, repr(tried), source_digest()))


@torch.inference_mode()
def references(pair: Pair) -> list[Reference]:
    """Texts that rounds on the host write with the current forms of both models."""
    # Lookups find nothing in a short prompt without repetitions.
    times = REPEATED if pair.looks_up else 1
    return [_reference(pair, prompt * times, sampling) for sampling in (Sampling(), SAMPLED) for prompt in PROMPTS]


def _reference(pair: Pair, prompt: Sequence[int], sampling: Sampling) -> Reference:
    noise = GumbelNoise(SEED, Schedule(sampling), pair.vocabulary, pair.target.device)
    text = _text(HostSession(pair, prompt, TOKENS, None, None, CoupledVerifier(noise)))
    target, *drafts = (_logits(model, [*prompt, *text[:-1]], pair.vocabulary) for model in pair.models.values())
    return Reference(prompt, text, target, drafts[0] if drafts else None, sampling)


def refusal(
    pair: Pair, graph_slots: GraphSlots, tried: Sequence[Rules | None], right: Sequence[Reference] | None = None
) -> str | None:
    """Why rounds cannot run on this pair's device; None if they can. `tried`: the tested rules; None in it stands for
    rounds without a draft. `right`: reference texts; None: they are decoded first.
    """
    return next(filter(None, refusals(pair, graph_slots, tried, right)), None)


def refusals(
    pair: Pair, graph_slots: GraphSlots, tried: Sequence[Rules | None], right: Sequence[Reference] | None = None
) -> Iterator[str | None]:
    """Yields a reason if the logits differ, then a reason or None for each tested rule on greedy and sampled texts."""
    try:
        right = right or references(pair)
        errors = {}
        for role, model in pair.models.items():
            expected = [getattr(reference, role) for reference in right]
            errors[role], largest = _error(pair, graph_slots, model, right, expected)
            allowed = largest * (FAR_IN_HALF if model.dtype in HALF else FAR)
            if not errors[role] <= allowed:  # written so that NaN fails too
                yield f"the {role}'s logits differ by {errors[role]:.2g}, where the largest logit is {largest:.2g}"
            errors[role] = max(errors[role], largest * torch.finfo(model.dtype).eps)
        greedy = [reference for reference in right if reference.sampling.greedy]
        sampled = [reference for reference in right if not reference.sampling.greedy]
        run = [rules for rules in tried if runs_on_device(pair, tree_rule(rules))]
        for texts in (greedy, sampled):
            for rules in run:
                yield _differing(pair, graph_slots, rules, texts, errors["target"])
    except Exception as error:  # noqa: BLE001 - as in `prepare_rounds`
        yield first_line(error)


def _differing(
    pair: Pair, graph_slots: GraphSlots, rules: Rules | None, right: Sequence[Reference], error: float
) -> str | None:
    """Why rounds under `rules` are wrong: a text that differs from its reference without a near tie. None if they are
    right. After a near tie, the next prompt's text is compared.
    """
    for reference in right:
        knobs = KnobState(rules) if rules else None
        without_draft = functools.partial(HostSession, pair, proposer=None, verifier=GreedyVerifier())
        # Only greedy rounds record their costs in `graph_slots`. Sampled rounds take longer, so they have other costs.
        costs = graph_slots.costs if reference.sampling.greedy else PlanCosts()
        sizes = PlanController(costs, AcceptanceModel()) if knobs and knobs.rule.budget.by_cost else None
        opened = pair, graph_slots, reference.prompt, TOKENS, knobs, without_draft, sizes
        text = _text(session_class(pair, knobs)(*opened, Schedule(reference.sampling), SEED))
        if text == reference.text:
            return None
        if not reference.tie(text, error):
            return f"rounds on the device wrote the tokens {text} instead of {reference.text}"
    return None


@without_gradients()
def _error(
    pair: Pair,
    graph_slots: GraphSlots,
    model: LanguageModel,
    right: Sequence[Reference],
    expected: Sequence[Float[Tensor, "P V"]],
) -> tuple[float, float]:
    """Largest error of the static form's logits, and the largest logit in the references."""
    form = graph_slots.forward(model)
    errors = []
    for tokens in (reference.tokens for reference in right):
        side = side_of(model, form, new_store(form, slots(len(tokens)) + BEYOND), pair)
        errors.append(read_logits(side, tokens)[:, : model.width].float())
    worst = max(float((one - other).abs().max()) for one, other in zip(errors, expected, strict=True))
    return worst, max(float(logits.abs().max()) for logits in expected)


def _logits(model: LanguageModel, tokens: Sequence[int], vocabulary: int) -> Float[Tensor, "P W"]:
    """Logits of the ids that model and target share; beside the large constant of other ids, errors would be small."""
    form, rows, visible = fitted(model, vocabulary), range(len(tokens)), np.tri(len(tokens), dtype=np.bool_)
    return form.forward(form.new_cache(len(tokens)), tokens, rows, visible)[:, : model.width].float()


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
