"""Device rounds are tested before texts use them; if they fail, the host drives the rounds."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
import torch

from decoder import RunConfig, methods
from decoder.draft.tree_size.cost_model import PlanCosts
from decoder.engine import Engine
from decoder.forward.families.native import NativeModel
from decoder.methods.auto import Auto
from decoder.methods.fixed import Fixed
from decoder.models.pair import Pair
from decoder.run import loading
from decoder.sampling.noise import DeviceSampling, GumbelNoise
from decoder.sampling.settings import Sampling, Schedule
from decoder.sampling.truncation import DeviceTruncation
from decoder.session.cuda_graph import device_state as state
from decoder.session.cuda_graph import self_test as trial
from decoder.session.cuda_graph import session
from decoder.session.cuda_graph.slots import GraphSlot, GraphSlots
from decoder.session.host import HostSession
from decoder.session.steering import KnobState
from decoder.verify.verifier import CoupledDeviceVerifier, CoupledVerifier
from tests.decoder.makers import TinyModels, graph_slots
from tests.decoder.session.cuda_graph.matching import recorded, records, refused, with_slots

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

    monkeypatch.setattr(trial, "session_class", lambda *_: open_session)
    assert refused(engine) is None
    assert tried == [(rules, sampling) for sampling in (Sampling(), trial.SAMPLED) for rules in loading.TRIED]
    assert trial.SAMPLED.truncates


def test_a_sampled_trial_captures_no_more_than_a_greedy_one_where_times_choose_no_size(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixed = [rules for rules in loading.TRIED if not isinstance(rules, Auto)]
    both, greedy = (recorded(engine) for _ in range(2))
    assert trial.refusal(both.pair, graph_slots(both), fixed) is None
    monkeypatch.setattr(trial, "SAMPLED", Sampling())
    assert trial.refusal(greedy.pair, graph_slots(greedy), fixed) is None
    assert records(both) <= 2 * records(greedy) <= 4 * len(fixed)


def test_what_sampled_trials_take_is_not_what_texts_begin_with(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    learnt: list[PlanCosts] = []
    monkeypatch.setattr(PlanCosts, "learn", lambda costs, *_: learnt.append(costs))
    assert refused(engine) is None
    begun_with = [costs is graph_slots(engine).costs for costs in learnt]
    assert begun_with == sorted(begun_with, reverse=True)
    assert {True, False} == set(begun_with)


def test_a_rule_whose_sampled_rounds_alone_are_wrong_is_noticed(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = CoupledDeviceVerifier.choose

    def wrong(verifier: CoupledDeviceVerifier, logits: torch.Tensor, *given: Any) -> torch.Tensor:
        return right(verifier, logits, *given) + (len(logits) == ROWS_OF_THE_FIXED_TREE)

    assert Fixed(depth=2, branching=2) in loading.TRIED
    monkeypatch.setattr(CoupledDeviceVerifier, "choose", wrong)
    assert "instead of" in (refused(engine) or "")


def test_what_cannot_be_captured_is_told_in_one_line(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nmore about it")

    monkeypatch.setattr(GraphSlot, "verification", fail)
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


def test_another_text_than_the_host_s_is_noticed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    right = state.verified

    def wrong(report: Any, nodes: int) -> Any:
        accepted, bonus = right(report, nodes)
        return accepted, bonus + 1

    monkeypatch.setattr(session, "verified", wrong)
    assert "instead of" in (refused(engine) or "")


def test_a_refused_device_leaves_the_rounds_to_the_host(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "prepare_rounds", lambda *_: "it does not")
    told: list[str] = []
    loading.try_rounds(engine, told.append)
    assert "the host" in told[-1]
    assert "it does not" in told[-1]
    monkeypatch.setattr(engine.pair.target, "device", torch.device("cuda"))
    monkeypatch.setattr("decoder.engine.HostSession", lambda *_: "the host's")
    opened = methods.METHODS["ar"].open(engine, [1], RunConfig())
    assert cast("object", opened) == "the host's"


def test_a_model_that_reads_numbers_back_leaves_the_rounds_to_the_host(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = NativeModel.rotation

    def read_back(form: NativeModel, store: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return right(form, store, positions.clamp(max=int(positions.max())))

    assert refused(replace(engine, slots=GraphSlots())) is None
    monkeypatch.setattr(NativeModel, "rotation", read_back)
    assert "copies numbers to the host" in (refused(replace(engine, slots=GraphSlots())) or "")


# Sampled texts


def test_another_noise_than_the_host_s_is_noticed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    right = DeviceSampling.noise
    monkeypatch.setattr(DeviceSampling, "noise", lambda sampling, places, *rest: right(sampling, places + 1, *rest))
    assert "instead of" in (refused(engine) or "")


def test_another_truncation_than_the_host_s_is_noticed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "SAMPLED", Sampling(temperature=2.0, top_k=3))
    assert refused(engine) is None
    monkeypatch.setattr(DeviceTruncation, "excluded", lambda _, logits: torch.zeros_like(logits, dtype=torch.bool))
    assert "instead of" in (refused(engine) or "")


@pytest.mark.parametrize(("sampling", "tie"), [(Sampling(), False), (Sampling(1.0), True)], ids=["greedy", "sampled"])
def test_a_near_tie_is_one_of_the_scores_under_the_noise_of_its_position(sampling: Sampling, *, tie: bool) -> None:
    noise = GumbelNoise(trial.SEED, Schedule(Sampling(1.0)), 4, torch.device("cpu")).scores(torch.zeros(1, 4), [3])
    logits = torch.zeros(4, 4)
    logits[2] = -noise[0] + torch.tensor([1e-4, 0.0, -5.0, -5.0])
    reference = trial.Reference([1, 2, 3], [0, 1], logits, logits, sampling)
    assert reference.tie([1, 1], error=1e-3) == tie
    assert not reference.tie([2, 1], error=1e-3)


def test_a_token_that_truncation_may_drop_by_an_error_is_a_near_tie() -> None:
    """Its score is far above the other token's; only whether truncation keeps it is uncertain."""
    noise = GumbelNoise(trial.SEED, Schedule(Sampling(1.0)), 4, torch.device("cpu")).scores(torch.zeros(1, 4), [3])
    first = int(noise.argmax())
    second = (first + 1) % 4
    logits = torch.full((4, 4), -9.0)
    logits[2, first], logits[2, second] = 0.0, 1e-4
    reference = trial.Reference([1, 2, 3], [second, 1], logits, logits, Sampling(1.0, top_k=1))
    assert reference.tie([first, 1], error=1e-3)
    assert not reference.tie([first, 1], error=1e-5)
