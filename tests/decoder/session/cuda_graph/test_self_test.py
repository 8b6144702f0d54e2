"""Device rounds are tested before texts use them; if they fail, the host drives the rounds."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from decoder.draft.tree_size.cost_model import PlanCosts
from decoder.engine import Engine
from decoder.forward.families.native import NativeModel
from decoder.methods.fixed import Fixed
from decoder.models.pair import Pair
from decoder.run import loading
from decoder.sampling.noise import DeviceSampling, GumbelNoise
from decoder.sampling.settings import Sampling, Schedule
from decoder.sampling.truncation import DeviceTruncation
from decoder.session.cuda_graph import self_test, session
from decoder.session.cuda_graph.self_test import PROMPTS, SEED, Reference
from decoder.session.cuda_graph.slots import GraphSlot, GraphSlots
from decoder.session.host import HostSession
from decoder.session.steering import KnobState
from decoder.verify.verifier import CoupledDeviceVerifier, CoupledVerifier
from tests.decoder.makers import TinyModels, graph_slots
from tests.decoder.session.cuda_graph import matching
from tests.decoder.session.cuda_graph.matching import refused, with_slots

ROWS_OF_THE_FIXED_TREE = 8


@pytest.fixture
def engine(tiny_models: TinyModels) -> Engine:
    return with_slots(tiny_models.engine("neox"))


def test_rounds_that_write_the_host_s_texts_are_trusted(engine: Engine) -> None:
    assert refused(engine) is None


def test_every_kind_of_round_is_tried_greedily_and_sampled_by_all_that_a_graph_can_do(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[object] = []

    def open_session(
        engine: Pair, __: GraphSlots, prompt: Sequence[int], limit: int, knobs: KnobState | None, *others: Any
    ) -> Any:
        *_, sampling, seed = others
        tried.append((knobs.rules if knobs else None, sampling.latest))
        noise = GumbelNoise(seed, sampling, engine.vocabulary, engine.target.device)
        return HostSession(engine, prompt, limit, None, None, CoupledVerifier(noise))

    monkeypatch.setattr(self_test, "session_class", lambda *_: open_session)
    assert refused(engine) is None
    assert tried == [(rules, sampling) for sampling in (Sampling(), self_test.SAMPLED) for rules in loading.TRIED]
    assert self_test.SAMPLED.truncates


def test_what_sampled_trials_take_is_not_what_texts_begin_with(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    learnt: list[PlanCosts] = []
    monkeypatch.setattr(PlanCosts, "learn", lambda costs, *_: learnt.append(costs))
    assert refused(engine) is None
    begun_with = [costs is graph_slots(engine).costs for costs in learnt]
    assert begun_with == sorted(begun_with, reverse=True)
    assert {True, False} == set(begun_with)


def another_text(right: Any) -> Any:
    def wrong(report: Any, nodes: int) -> Any:
        accepted, bonus = right(report, nodes)
        return accepted, bonus + 1

    return wrong


MISTAKES: dict[str, tuple[object, str, Callable[[Any], Any]]] = {
    "another text": (session, "verified", another_text),
    "another noise": (
        DeviceSampling,
        "noise",
        lambda right: lambda sampling, places, *rest: right(sampling, places + 1, *rest),
    ),
    "sampled rounds of one rule alone": (
        CoupledDeviceVerifier,
        "choose",
        lambda right: lambda verifier, logits, *given: right(verifier, logits, *given)
        + (len(logits) == ROWS_OF_THE_FIXED_TREE),
    ),
    "another truncation": (
        DeviceTruncation,
        "excluded",
        lambda _: lambda _, logits: torch.zeros_like(logits, dtype=torch.bool),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_another_text_than_the_host_s_is_noticed(engine: Engine, monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    assert Fixed(depth=2, branching=2) in loading.TRIED
    if mistake == "another truncation":
        monkeypatch.setattr(self_test, "SAMPLED", Sampling(temperature=2.0, top_k=3))
        assert refused(engine) is None
    owner, name, wrong = MISTAKES[mistake]
    monkeypatch.setattr(owner, name, wrong(getattr(owner, name)))
    assert "instead of" in (refused(engine) or "")


def test_what_cannot_be_captured_is_told_in_one_line(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nmore about it")

    monkeypatch.setattr(GraphSlot, "work", fail)
    assert refused(engine) == "operation not permitted when stream is capturing"


@pytest.mark.parametrize("name", ["wide-target", "wide-draft"])
def test_a_draft_of_another_width_is_tested_on_the_ids_that_it_shares_with_the_target(
    tiny_models: TinyModels, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = with_slots(tiny_models.engine(name))
    assert refused(engine) is None
    slots, right = graph_slots(engine), NativeModel.computed
    wrong = slots.forward(engine.pair.draft_model)
    monkeypatch.setattr(NativeModel, "computed", lambda form, *given: right(form, *given) + (form is wrong))
    assert "the draft's logits differ by 1" in (refused(engine) or "")


def test_a_refused_device_leaves_the_rounds_to_the_host(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_test, "prepare_rounds", lambda *_: "it does not")
    told: list[str] = []
    loading.try_rounds(engine, told.append)
    assert "the host" in told[-1]
    assert "it does not" in told[-1]
    assert isinstance(engine.session([1], 8, None), HostSession)


def test_a_model_that_reads_numbers_back_leaves_the_rounds_to_the_host(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = NativeModel.rotation

    def read_back(form: NativeModel, store: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return right(form, store, positions.clamp(max=int(positions.max())))

    assert refused(replace(engine, slots=GraphSlots())) is None
    monkeypatch.setattr(NativeModel, "rotation", read_back)
    assert "copies numbers to the host" in (refused(replace(engine, slots=GraphSlots())) or "")


# Near ties


@pytest.mark.parametrize(
    ("found", "tie"),
    [((1, 5, 5), True), ((2, 0, 0), False), ((0, 1, 0), False), ((0, 0, 1), True), ((0, 0), False)],
)
def test_only_the_first_token_that_differs_is_judged_by_its_score(found: tuple[int, ...], *, tie: bool) -> None:
    scores = torch.tensor([(4.0, 3.9, 3.0), (4.0, 3.0, 3.9), (4.0, 3.9, 3.0)])
    assert Reference((1,), (0, 0, 0), scores, torch.zeros(0), Sampling()).tie(found, 0.06) is tie


def noise() -> torch.Tensor:
    """Noise of the position of the logits in row 2."""
    return GumbelNoise(SEED, Schedule(Sampling(1.0)), 4, torch.device("cpu")).scores(torch.zeros(1, 4), [3])[0]


@pytest.mark.parametrize(("sampling", "tie"), [(Sampling(), False), (Sampling(1.0), True)], ids=["greedy", "sampled"])
def test_a_near_tie_is_one_of_the_scores_under_the_noise_of_its_position(sampling: Sampling, *, tie: bool) -> None:
    logits = torch.zeros(4, 4)
    logits[2] = -noise() + torch.tensor([1e-4, 0.0, -5.0, -5.0])
    reference = Reference([1, 2, 3], [0, 1], logits, logits, sampling)
    assert reference.tie([1, 1], error=1e-3) == tie
    assert not reference.tie([2, 1], error=1e-3)


@pytest.fixture
def half(tiny_models: TinyModels) -> Engine:
    return with_slots(tiny_models.engine("neox", "bfloat16"))


def altered(patch: pytest.MonkeyPatch, change: Callable[[list[int], Any], list[int]]) -> list[object]:
    """Patches the test so that `change` alters the device's texts of plain decoding; returns the list of prompts."""
    right, prompts = self_test._text, list[object]()

    def text(session: Any) -> Any:
        found = list(right(session))
        if type(session).__name__ != "GraphSession":
            return found
        prompts.append(tuple(session.text[:6]))
        return change(found, prompts[-1])

    patch.setattr(self_test, "_text", text)
    patch.setattr(matching, "TRIED", (None,))
    return prompts


def test_a_near_tie_is_no_fault_and_another_prompt_is_tried(half: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    right, *others = (each for each in self_test.references(half.pair) if each.sampling.greedy)
    assert right.prompt == PROMPTS[0]

    def second(found: list[int], prompt: Any) -> list[int]:
        """Replaces the third token of the text after the first prompt."""
        return [*found[:2], found[2] + 1, *found[3:]] if prompt == PROMPTS[0] else found

    monkeypatch.setattr(self_test, "_error", lambda *_: (0.01, 20.0))
    prompts, token = altered(monkeypatch, second), right.text[2]
    for distance, near in ((1e-3, True), (5.0, False)):
        logits = right.target.clone()
        logits[7, token + 1] = logits[7, token] - distance
        refusal = refused(half, [replace(right, target=logits), *others])
        assert (refusal is None) == near
        assert near or "instead of" in (refusal or "")
    assert prompts[:2] == list(PROMPTS[:2])


def test_a_tie_is_as_near_as_the_logits_are_off(half: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[float] = []

    def never(_: object, __: object, error: float) -> bool:
        errors.append(error)
        return False

    monkeypatch.setattr(Reference, "tie", never)
    altered(monkeypatch, lambda found, _: [found[0] + 1, *found[1:]])
    right = self_test.references(half.pair)
    assert "instead of" in (refused(half, right) or "")
    logits = [each.target for each in right]
    off, largest = self_test._error(half.pair, graph_slots(half), half.pair.target, right, logits)
    assert errors == [max(off, largest * torch.finfo(torch.bfloat16).eps)]
    assert errors[0] < 0.05 * largest


@pytest.mark.parametrize("role", ["target", "draft"])
def test_forms_whose_logits_are_far_off_are_refused_whatever_they_write(
    half: Engine, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    right, form = NativeModel.computed, graph_slots(half).forward(half.pair.models[role])
    monkeypatch.setattr(
        NativeModel, "computed", lambda self, *given: right(self, *given) * (1.3 if self is form else 1)
    )
    assert (refused(half) or "").startswith(f"the {role}'s logits differ by ")
    monkeypatch.setattr(NativeModel, "computed", lambda self, *given: right(self, *given) * torch.nan)
    assert (refused(half) or "").startswith("the target's logits differ by nan")
