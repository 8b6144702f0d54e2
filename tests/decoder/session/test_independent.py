"""Independent sampling in the engine: sampled trees, lossless verifiers, and refused combinations."""

from typing import Any

import pytest

from decoder import RunConfig, Steering, decode
from decoder.errors import ConfigError
from decoder.events import Event, Knob, Round, Run
from decoder.methods.delayed import Delayed
from decoder.verify.names import VERIFIER_NAMES
from tests.decoder.makers import PROMPT, Played, TinyModels, play, with_pair
from tests.decoder.session.cuda_graph.on_gpu import gpu, on_gpu

SHAPES = [(1, 0, 0), (1, 0, 3), (2, 0, 3), (3, 2, 2), (4, 1, 0)]


def config(verifier: str, drafting: str = "delayed", shape: tuple[int, int, int] = (2, 1, 2), **more: Any) -> RunConfig:
    own = Delayed(verifier, drafting, *shape)
    return RunConfig(("delayed", "ar"), 24, **{"temperature": 0.8, **more}, delayed=own)


def played(tiny_models: TinyModels, config: RunConfig) -> Played:
    return tiny_models.play(tiny_models.pair("neox"), "float32", PROMPT, config)


def precise(tiny_models: TinyModels, config: RunConfig) -> Played:
    return tiny_models.play(tiny_models.pair("neox"), "float64", PROMPT, config)


@pytest.mark.parametrize("name", VERIFIER_NAMES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_at_temperature_0_every_verifier_writes_the_greedy_text(
    tiny_models: TinyModels, name: str, shape: tuple[int, int, int]
) -> None:
    if name == "block" and shape[0] > 1 and shape[2]:
        shape = (1, *shape[1:])
    race = precise(tiny_models, config(name, shape=shape, temperature=0))
    assert race.tokens("delayed") == race.tokens("ar")
    assert race.figures("delayed").identical_to_ar


@pytest.mark.parametrize("name", VERIFIER_NAMES)
def test_one_seed_is_one_text_and_another_is_another(tiny_models: TinyModels, name: str) -> None:
    shape = (1, 0, 3) if name == "block" else (2, 1, 2)
    texts = [
        played(tiny_models, config(name, shape=shape, temperature=1.5, seed=seed)).tokens("delayed")
        for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_its_text_is_not_compared_with_that_of_ar(tiny_models: TinyModels) -> None:
    race = played(tiny_models, config("traversal"))
    assert race.figures("delayed").identical_to_ar is None


def test_nss_on_deterministic_trees_writes_the_text_of_ar(tiny_models: TinyModels) -> None:
    methods = ("dynatree", "linear", "fixed", "auto", "alg1", "ar")
    blind = RunConfig(methods, 40, temperature=0.9, top_p=0.9, verifier="nss")
    race = precise(tiny_models, blind)
    assert all(race.tokens(name) == race.tokens("ar") for name in methods)
    knowing = RunConfig(methods, 40, temperature=0.9, top_p=0.9)
    informed = precise(tiny_models, knowing)
    assert informed.tokens("ar") == race.tokens("ar")
    assert all(not event.draft_logprobs for event in race.rounds("dynatree"))
    right = [each.figures("dynatree").acceptance_rate or 0 for each in (informed, race)]
    assert right[0] > right[1]


def test_iid_drafting_branches_at_the_root(tiny_models: TinyModels) -> None:
    race = played(tiny_models, config("specinfer", "iid", (4, 2, 1), temperature=2.0))
    widest = max(event.parents.count(0) for event in race.rounds("delayed"))
    deepest = max(len(event.accepted) for event in race.rounds("delayed"))
    assert widest > 1
    assert deepest <= 3
    delayed = played(tiny_models, config("specinfer", "delayed", (4, 2, 1), temperature=2.0))
    assert all(event.parents.count(0) == 1 for event in delayed.rounds("delayed") if event.position < 23)


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_text_ends_at_its_length(tiny_models: TinyModels, limit: int) -> None:
    whole = RunConfig(("delayed",), limit, temperature=1.0, delayed=Delayed("traversal", "delayed", 3, 2, 4))
    assert len(played(tiny_models, whole).tokens("delayed")) == limit


def test_knobs_of_drafting_and_verifier_act_from_the_next_round(tiny_models: TinyModels) -> None:
    engine, steering = tiny_models.engine("neox"), Steering()
    events = list[Event]()
    for event in decode(
        engine, PROMPT, RunConfig(("delayed",), 40, temperature=1.0, drafting="delayed", verifier="nss"), steering
    ):
        events.append(event)
        if isinstance(event, Round) and event.round == 2:
            for name, value in (("rollouts", 1), ("l1", 0), ("l2", 1), ("verifier", 8), ("drafting", 1)):
                steering.turn(name, value)
    race = Played(events)
    assert all(len(event.tokens) == 2 for event in race.rounds("delayed") if event.round > 2 and event.position < 39)
    turned = {event.name: event.new for event in events if isinstance(event, Knob)}
    assert turned == {"rollouts": 1, "l1": 0, "l2": 1, "verifier": 8, "drafting": 1}


def test_a_run_says_which_verifier_and_drafting_it_has(tiny_models: TinyModels) -> None:
    begins = played(tiny_models, config("block", shape=(1, 0, 2))).events[0]
    assert isinstance(begins, Run)
    assert (begins.verifier, begins.drafting) == ("block", "delayed")
    own = {"verifier": "block", "drafting": "delayed", "k": 1, "l1": 0, "l2": 2, "selector": "shipped"}
    assert begins.methods["delayed"] == own


def test_usual_settings_are_coupled_trees() -> None:
    assert (RunConfig().verifier, RunConfig().drafting) == ("coupled", "tree")
    assert "delayed" not in RunConfig().methods


def test_drafting_that_draws_lets_the_method_race_that_does() -> None:
    assert RunConfig(verifier="block", drafting="iid", delayed=Delayed(k=1)).methods[0] == "delayed"


def test_the_method_that_draws_has_a_verifier_of_its_own_where_none_is_named() -> None:
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


@pytest.mark.parametrize("drafting", ["iid", "delayed"])
def test_rounds_say_what_was_drawn_and_what_was_to_be_expected(tiny_models: TinyModels, drafting: str) -> None:
    race = played(tiny_models, config("specinfer", drafting, (4, 1, 2), temperature=1.0))
    for event in race.rounds("delayed"):
        assert event.shape is not None
        assert event.shape[0] == 4
        assert len(event.drawn) == len(event.tokens)
        levels = min(event.shape[1] + event.shape[2], 23 - event.position)
        trunk = min(event.shape[1], levels)
        assert sum(event.drawn) == 1 + trunk + 4 * (levels - trunk)
        told = event.verification
        assert told is not None
        assert told.predicted_tokens == pytest.approx(sum(told.reach))
        assert len(told.reach) == len(event.tokens)
        assert [each.accepted for each in told.path][: len(event.accepted)] == [True] * len(event.accepted)
        assert all(0 <= each.l1 <= 2 and (each.acceptance or 0) <= each.bound + 1e-9 for each in told.path)


def test_coupled_rounds_tell_how_surprising_their_tokens_were(tiny_models: TinyModels) -> None:
    coupled = RunConfig(("dynatree", "fixed", "ar"), 24, temperature=0.8, top_p=0.9)
    race = precise(tiny_models, coupled)
    sums = {
        name: [event.verification.surprise if event.verification else None for event in race.rounds(name)]
        for name in ("dynatree", "fixed", "ar")
    }
    totals = {name: sum(each for each in found if each is not None) for name, found in sums.items()}
    assert totals["dynatree"] == pytest.approx(totals["ar"], abs=1e-6)
    assert totals["fixed"] == pytest.approx(totals["ar"], abs=1e-6)
    assert totals["ar"] != 0


def test_greedy_rounds_tell_nothing_of_chance(tiny_models: TinyModels) -> None:
    race = played(tiny_models, config("traversal", temperature=0))
    assert all(event.verification is None for event in race.rounds("delayed") + race.rounds("ar"))


@gpu
@pytest.mark.gpu
@pytest.mark.parametrize("name", VERIFIER_NAMES)
def test_on_a_gpu_every_verifier_writes_the_greedy_text_at_temperature_0_and_tells_chances_above(
    tiny_models: TinyModels, name: str
) -> None:
    pair, shape = tiny_models.pair("neox"), (1, 0, 3) if name == "block" else (2, 1, 2)
    engine = on_gpu(tiny_models, "neox", "float64")
    greedy = play(engine, config(name, shape=shape, temperature=0))
    on_cpu = tiny_models.play(pair, "float64", PROMPT, config(name, shape=shape, temperature=0))
    assert greedy.tokens("delayed") == on_cpu.tokens("ar")
    sampled = play(engine, config(name, shape=shape))
    assert all(event.verification and event.verification.reach for event in sampled.rounds("delayed"))


@pytest.mark.parametrize("name", VERIFIER_NAMES)
@pytest.mark.parametrize(("temperature", "top_p"), [(2.0, 1.0), (1e-4, 1.0), (1e-3, 0.5), (1.0, 0.01), (0.3, 0.9)])
def test_settings_at_their_ends_decode(tiny_models: TinyModels, name: str, temperature: float, top_p: float) -> None:
    shape = (1, 0, 3) if name == "block" else (3, 1, 2)
    settings = config(name, shape=shape, temperature=temperature, top_p=top_p)
    race = played(tiny_models, settings)
    assert len(race.tokens("delayed")) == 24
    told = [event.verification for event in race.rounds("delayed")]
    assert all(each is not None and abs(each.surprise) < 60 and max(each.reach) <= 1 + 1e-9 for each in told)


def test_hardly_any_temperature_or_top_p_is_greedy(tiny_models: TinyModels) -> None:
    pair = tiny_models.pair("neox")
    greedy = tiny_models.play(pair, "float64", PROMPT, config("traversal", temperature=0)).tokens("ar")
    hardly: list[dict[str, Any]] = [
        {"temperature": 1e-5},
        {"temperature": 1.0, "top_p": 1e-6},
        {"temperature": 1.0, "top_k": 1},
    ]
    for given in hardly:
        assert tiny_models.play(pair, "float64", PROMPT, config("traversal", **given)).tokens("delayed") == greedy


@pytest.mark.parametrize("name", VERIFIER_NAMES)
def test_a_text_ends_with_the_end_token_inside_a_block(tiny_models: TinyModels, name: str) -> None:
    engine = tiny_models.engine("neox")
    settings = config(name, shape=(1, 0, 6) if name == "block" else (2, 2, 4), temperature=1.0)
    whole = play(engine, settings).tokens("delayed")
    end = whole[7]
    ended = play(with_pair(engine, eos=frozenset({end})), settings)
    assert ended.tokens("delayed") == whole[: whole.index(end) + 1]
    assert ended.end("delayed").reason == "eos"


def test_the_temperature_turns_to_0_and_back_while_it_runs(tiny_models: TinyModels) -> None:
    engine, steering = tiny_models.engine("neox"), Steering()
    heats, found = {3: 0.0, 9: 1.2}, list[Round]()
    for event in decode(engine, PROMPT, RunConfig(("delayed",), 60, temperature=0.9), steering):
        if isinstance(event, Round):
            found.append(event)
            if event.round in heats:
                steering.turn("temperature", heats[event.round])
    assert sum(len(event.committed) for event in found) == 60
    told = [event.verification is not None for event in found]
    assert told[0]
    assert False in told
    assert told[-1]
