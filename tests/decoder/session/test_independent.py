"""Independent sampling in the engine: sampled trees, lossless verifiers, and refused combinations."""

from itertools import cycle
from typing import Any

import pytest

from decoder import RunConfig
from decoder.errors import ConfigError
from decoder.events import Knob, Run
from decoder.methods.delayed import Delayed
from decoder.verify.names import VERIFIER_NAMES
from tests.decoder.makers import PROMPT, Played, TinyModels, play
from tests.decoder.session.all_methods import turned

Shape = tuple[int, int, int]
EVERY = pytest.mark.parametrize("name", VERIFIER_NAMES)
ENDS = (2.0, 1.0), (1e-4, 1.0), (1e-3, 0.5), (1.0, 0.01), (0.3, 0.9)
"""Temperatures and top-p."""
COUPLED = ("dynatree", "linear", "fixed", "auto", "alg1", "ar")


def config(verifier: str, drafting: str = "delayed", shape: Shape = (2, 1, 2), **more: Any) -> RunConfig:
    """A race with sampled trees; the verifier block has one path as long as the others'."""
    k, l1, l2 = shape
    own = Delayed(verifier, drafting, *((1, 0, l1 + l2) if verifier == "block" else (k, l1, l2)))
    return RunConfig(("delayed", "ar"), 24, **{"temperature": 0.8, **more}, delayed=own)


def played(tiny_models: TinyModels, config: RunConfig, dtype: str = "float32") -> Played:
    return tiny_models.play(tiny_models.pair("neox"), dtype, PROMPT, config)


# Texts


@EVERY
def test_one_seed_is_one_text_and_another_is_another(tiny_models: TinyModels, name: str) -> None:
    engine = tiny_models.engine("neox")
    texts = [play(engine, config(name, temperature=1.5, seed=seed)).tokens("delayed") for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize("given", [{"temperature": 1e-5}, {"temperature": 1.0, "top_p": 1e-6},
                                   {"temperature": 1.0, "top_k": 1}], ids=str)  # fmt: skip
def test_hardly_any_temperature_or_top_p_is_greedy(tiny_models: TinyModels, given: dict[str, Any]) -> None:
    greedy = played(tiny_models, config("traversal", temperature=0), "float64").tokens("ar")
    assert played(tiny_models, config("traversal", **given), "float64").tokens("delayed") == greedy


@pytest.mark.parametrize(("name", "ends"), zip(2 * VERIFIER_NAMES, cycle(ENDS), strict=False))
def test_settings_at_their_ends_decode(tiny_models: TinyModels, name: str, ends: tuple[float, float]) -> None:
    race = played(tiny_models, config(name, shape=(3, 1, 2), temperature=ends[0], top_p=ends[1]))
    assert len(race.tokens("delayed")) == 24
    told = [event.verification for event in race.rounds("delayed")]
    assert all(each is not None and abs(each.surprise) < 60 and max(each.reach) <= 1 + 1e-9 for each in told)


def test_a_draft_that_knows_the_noise_is_accepted_more_often_than_under_nss(
    tiny_models: TinyModels,
) -> None:
    blind, knowing = (
        played(tiny_models, RunConfig(COUPLED, 40, temperature=0.9, top_p=0.9, verifier=verifier), "float64")
        for verifier in ("nss", None)
    )
    assert knowing.tokens("ar") == blind.tokens("ar")
    assert not any(event.draft_logprobs for event in blind.rounds("dynatree"))
    right = [each.figures("dynatree").acceptance_rate or 0 for each in (knowing, blind)]
    assert right[0] > right[1]


# What rounds tell


@pytest.mark.parametrize("drafting", ["iid", "delayed"])
def test_rounds_say_what_was_drawn_and_what_was_to_be_expected(tiny_models: TinyModels, drafting: str) -> None:
    race = played(tiny_models, config("specinfer", drafting, (4, 1, 2), temperature=2.0))
    for event in race.rounds("delayed"):
        assert event.shape is not None
        assert event.shape[0] == 4
        assert len(event.drawn) == len(event.tokens)
        levels = min(event.shape[1] + event.shape[2], 23 - event.position)
        trunk = min(event.shape[1], levels)
        assert trunk == 0 or event.parents.count(0) == 1
        assert sum(event.drawn) == 1 + trunk + 4 * (levels - trunk)
        told = event.verification
        assert told is not None
        assert told.predicted_tokens == pytest.approx(sum(told.reach))
        assert len(told.reach) == len(event.tokens)
        assert [each.accepted for each in told.path][: len(event.accepted)] == [True] * len(event.accepted)
        assert all(0 <= each.l1 <= 2 and (each.acceptance or 0) <= each.bound + 1e-9 for each in told.path)
    widest = max(event.parents.count(0) for event in race.rounds("delayed"))
    assert (widest > 1) == (drafting == "iid"), "iid drafting branches at the root"


def test_a_run_says_which_verifier_and_drafting_it_has_and_is_not_compared_with_ar(tiny_models: TinyModels) -> None:
    race = played(tiny_models, config("block", shape=(1, 0, 2)))
    begins = race.events[0]
    assert isinstance(begins, Run)
    assert (begins.verifier, begins.drafting) == ("block", "delayed")
    own = {"verifier": "block", "drafting": "delayed", "k": 1, "l1": 0, "l2": 2, "selector": "shipped"}
    assert begins.methods["delayed"] == own
    assert race.figures("delayed").identical_to_ar is None
    greedy = played(tiny_models, config("traversal", temperature=0), "float64")
    assert greedy.figures("delayed").identical_to_ar
    assert all(event.verification is None for event in greedy.rounds("delayed") + greedy.rounds("ar"))


def test_coupled_rounds_tell_how_surprising_their_tokens_were(tiny_models: TinyModels) -> None:
    methods = ("dynatree", "fixed", "ar")
    race = played(tiny_models, RunConfig(methods, 24, temperature=0.8, top_p=0.9), "float64")
    totals = [sum(event.verification.surprise for event in race.rounds(name) if event.verification) for name in methods]
    assert totals == pytest.approx([totals[-1]] * 3, abs=1e-6)
    assert totals[-1] != 0


# Turned knobs


def test_knobs_of_drafting_and_verifier_act_from_the_next_round(tiny_models: TinyModels) -> None:
    asked = RunConfig(("delayed",), 40, temperature=1.0, drafting="delayed", verifier="nss")
    race = turned(
        tiny_models.engine("neox"),
        asked,
        {3: [("rollouts", 1), ("l1", 0), ("l2", 1), ("verifier", 8), ("drafting", 1)]},
    )
    assert all(len(event.tokens) == 2 for event in race.rounds("delayed") if event.round > 2 and event.position < 39)
    told = {event.name: event.new for event in race.events if isinstance(event, Knob)}
    assert told == {"rollouts": 1, "l1": 0, "l2": 1, "verifier": 8, "drafting": 1}


def test_the_temperature_turns_to_0_and_back_while_it_runs(tiny_models: TinyModels) -> None:
    asked = RunConfig(("delayed",), 60, temperature=0.9)
    race = turned(tiny_models.engine("neox"), asked, {4: [("temperature", 0.0)], 10: [("temperature", 1.2)]})
    assert len(race.tokens("delayed")) == 60
    told = [event.verification is not None for event in race.rounds("delayed")]
    assert (told[0], False in told, told[-1]) == (True, True, True)


# Settings


def test_usual_settings_are_coupled_trees_and_what_draws_has_a_verifier_of_its_own() -> None:
    assert (RunConfig().verifier, RunConfig().drafting) == ("coupled", "tree")
    assert "delayed" not in RunConfig().methods
    assert RunConfig(verifier="block", drafting="iid", delayed=Delayed(k=1)).methods[0] == "delayed"
    named = RunConfig(("delayed", "ar"))
    assert (named.verifier, named.drafting) == ("traversal", "delayed")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"verifier": "traversal"}, "biased on deterministic trees"),
        ({"drafting": "delayed"}, "verifier coupled does not work on sampled trees"),
        ({"verifier": "block", "drafting": "iid"}, "block takes one drafted path, not 2"),
        ({"verifier": "best"}, "which is unknown; choose from"),
        ({"drafting": "wild", "verifier": "nss"}, "which is unknown; choose from"),
        (
            {"verifier": "nss", "drafting": "iid", "methods": ("linear",)},
            "but none of the methods linear samples trees",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RunConfig(**given)
