"""With one seed, every method writes the text of plain sampling, and every sampled round equals the reference's."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoder import DynaTree, Fixed, Linear, RunConfig, Steering, decode
from decoder.events import Knob, Round, Run
from decoder.sampling.settings import SAMPLING, Sampling
from tests import tiny
from tests.decoder.makers import Played, TinyModels, play
from tests.decoder.property_settings import examples
from tests.decoder.session.round_comparison import Score, assert_same_rounds
from tests.reference import greedy, simulate
from tests.sampled_reference import SampledOracle
from tests.tiny import FAMILIES

PROMPT = "A small model guesses; "
COUPLED = ("ar", "linear", "fixed", "bestfirst", "dynatree", "auto", "alg1", "streaming")
TEXT = 24


def oracle(tiny_models: TinyModels, name: str, dtype: str, config: RunConfig) -> SampledOracle:
    pair = tiny_models.pair(name)
    modules = tiny_models.plain(pair.target, dtype), tiny_models.plain(pair.draft, dtype)
    return SampledOracle(*modules, tiny.CONTEXT, sampling=config.sampling, seed=config.seed)


def played(tiny_models: TinyModels, config: RunConfig, name: str = "neox", dtype: str = "float32") -> Played:
    return play(tiny_models.engine(name, dtype), config, PROMPT)


@pytest.mark.parametrize(
    ("name", "seed", "sampling"),
    [
        ("neox", 0, Sampling(0.3)),
        ("neox-strange", 3, Sampling(0.8, 0, 0.9)),
        ("neox-strange", 3, Sampling(1.0, 20)),
        ("neox", 0, Sampling(2.0, 30, 0.7)),
    ],
    ids=str,
)
def test_all_methods_write_what_plain_sampling_does(
    tiny_models: TinyModels, name: str, seed: int, sampling: Sampling
) -> None:
    config = RunConfig(COUPLED, TEXT, seed, parameters={SAMPLING: sampling})
    prompt = tiny_models.prompt_tokens(tiny_models.pair(name), PROMPT)
    expected = greedy(oracle(tiny_models, name, "float32", config), prompt, TEXT)
    race = played(tiny_models, config, name)
    assert {method: race.tokens(method) for method in COUPLED} == dict.fromkeys(COUPLED, expected)


def test_seeds_and_temperatures_make_other_texts(tiny_models: TinyModels) -> None:
    texts = {
        tuple(played(tiny_models, RunConfig(("ar",), TEXT, seed, temperature=heat)).tokens("ar"))
        for seed in range(3)
        for heat in (0.7, 1.1)
    }
    assert len(texts) == 6


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_short_text_ends_where_it_must(tiny_models: TinyModels, limit: int) -> None:
    whole = played(tiny_models, RunConfig(("ar",), 8, temperature=0.9)).tokens("ar")
    race = played(tiny_models, RunConfig(COUPLED, limit, temperature=0.9))
    assert {method: race.tokens(method) for method in COUPLED} == dict.fromkeys(COUPLED, whole[:limit])


def test_an_end_of_text_token_within_a_block_ends_the_text(tiny_models: TinyModels) -> None:
    text = played(tiny_models, RunConfig(("ar",), TEXT, temperature=0.9)).tokens("ar")
    ending = tiny_models.loaded(tiny_models.ending("neox", eos_token_id=text[11]), "float32")
    race = play(ending, RunConfig(COUPLED, TEXT, temperature=0.9), PROMPT)
    expected = text[: text.index(text[11]) + 1]
    assert {method: race.tokens(method) for method in COUPLED} == dict.fromkeys(COUPLED, expected)


@pytest.mark.parametrize(("name", "value"), [("temperature", 1.4), ("temperature", 0.0), ("top_p", 0.5)])
@pytest.mark.parametrize("begun", [0.0, 0.8])
def test_a_turn_changes_the_texts_of_all_methods_at_one_position(
    tiny_models: TinyModels, name: str, value: float, begun: float
) -> None:
    config = RunConfig(COUPLED, 32, temperature=begun)
    before = tiny_models.play(tiny_models.pair("neox"), "float32", PROMPT, config)
    steering, events = Steering(), list[Any]()
    engine, turned_at = tiny_models.engine("neox"), 0
    for event in decode(engine, PROMPT, config, steering):
        events.append(event)
        if len(events) == 12:
            steering.turn(name, value, SAMPLING)
            turned_at = max(len(Played(events).tokens(method)) for method in COUPLED)
    texts = {method: Played(events).tokens(method) for method in COUPLED}
    assert texts == dict.fromkeys(COUPLED, texts["ar"])
    assert texts["ar"][:turned_at] == before.tokens("ar")[:turned_at]
    changed = {
        event.method: (event.old, event.new) for event in events if isinstance(event, Knob) and event.name == name
    }
    old = begun if name == "temperature" else 1.0
    assert changed == (dict.fromkeys(COUPLED, (old, value)) if old != value else {})
    if old != value and max(begun, value) > 0.5 and (name, begun) != ("top_p", 0.0):
        assert texts["ar"] != before.tokens("ar")


def test_a_recording_says_how_tokens_were_chosen_and_what_the_draft_thought(tiny_models: TinyModels) -> None:
    race = played(tiny_models, RunConfig(("dynatree",), 20, 9, temperature=0.7, top_k=40, top_p=0.9))
    (run,) = [event for event in race.events if isinstance(event, Run)]
    assert (run.temperature, run.top_k, run.top_p, run.seed) == (0.7, 40, 0.9, 9)
    plain = oracle(tiny_models, "neox", "float32", RunConfig())
    text = tuple(run.prompt_tokens)
    for event in race.rounds("dynatree"):
        assert event.draft_logprobs[1:] == pytest.approx(in_tree(event, text, plain.draft_logprobs), abs=1e-4)
        text += tuple(event.committed)


def in_tree(event: Round, text: tuple[int, ...], logprobs: Callable[[tuple[int, ...]], Sequence[float]]) -> list[float]:
    """Log-probability of each drafted node after its path, by a function from a text to the next token's
    log-probabilities.
    """
    paths: list[tuple[int, ...]] = [()]
    for token, parent in list(zip(event.tokens, event.parents, strict=True))[1:]:
        paths.append((*paths[parent], token))
    return [logprobs(text + path[:-1])[path[-1]] for path in paths[1:]]


def test_a_greedy_recording_says_what_the_draft_thought_and_its_sharpened_probabilities(
    tiny_models: TinyModels,
) -> None:
    race = played(tiny_models, RunConfig(("dynatree",), 20, dynatree=DynaTree(sharpness=2)))
    (run,) = [event for event in race.events if isinstance(event, Run)]
    plain = oracle(tiny_models, "neox", "float32", RunConfig())
    text = tuple(run.prompt_tokens)
    for event in race.rounds("dynatree"):
        expected = in_tree(event, text, lambda before: plain.draft_logprobs(before, sharpness=2))
        assert event.logprobs[1:] == pytest.approx(expected, abs=1e-4)
        assert event.draft_logprobs[1:] == pytest.approx(in_tree(event, text, plain.draft_logprobs), abs=1e-4)
        text += tuple(event.committed)


def test_greedy_rounds_say_nothing_more_than_before(tiny_models: TinyModels) -> None:
    race = played(tiny_models, RunConfig(("dynatree",), 20, dynatree=DynaTree()))
    assert not any(event.draft_logprobs for event in race.rounds("dynatree"))


def test_a_method_that_draws_by_itself_is_not_compared(tiny_models: TinyModels) -> None:
    sampled = played(tiny_models, RunConfig(("ar", "hf", "linear"), 20, temperature=1.0))
    assert (sampled.figures("hf").identical_to_ar, sampled.figures("hf").first_difference) == (None, None)
    assert sampled.figures("hf").tokens_per_second is not None
    assert sampled.figures("linear").identical_to_ar
    assert played(tiny_models, RunConfig(("ar", "hf"), 20)).figures("hf").identical_to_ar


TREES = st.sampled_from(
    [
        DynaTree(),
        DynaTree(rho_stop=0.01, rho_deep=0.02, tau=0.0, n_max=20, selection="best"),
        DynaTree(branching=(2, 3, 4), tau_h=0.8, tau_l=0.3, n_max=12, window=2),
    ]
)
CONFIGS = st.one_of(
    st.builds(
        lambda tree, method: RunConfig((method,), 20, dynatree=tree), TREES, st.sampled_from(["dynatree", "alg1"])
    ),
    st.builds(lambda tree: RunConfig(("fixed",), 20, fixed=tree), st.sampled_from([Fixed(), Fixed(3, 3, 0.02, 14)])),
    st.builds(lambda k: RunConfig(("linear",), 20, linear=Linear(k)), st.integers(1, 6)),
)
SAMPLINGS = st.builds(
    Sampling,
    st.sampled_from([0.05, 0.5, 0.8, 1.0, 2.0]),
    st.sampled_from([0, 0, 1, 12]),
    st.sampled_from([1.0, 0.95, 0.5]),
)


@examples(24)
@given(
    config=CONFIGS,
    sampling=SAMPLINGS,
    seed=st.integers(0, 2**32 - 1),
    name=st.sampled_from([*FAMILIES, "neox", "neox-strange", "wide-target", "wide-draft"]),
    dtype=st.sampled_from(["float64", "float32"]),
)
def compare_any(
    tiny_models: TinyModels, score: Score, config: RunConfig, sampling: Sampling, seed: int, name: str, dtype: str
) -> None:
    run = RunConfig(config.methods, config.max_new_tokens, seed, parameters={**config.parameters, SAMPLING: sampling})
    (method,) = run.methods
    found = played(tiny_models, run, name, dtype).rounds(method)
    rules: dict[str, DynaTree | Fixed | Linear] = {
        "dynatree": run.of(DynaTree),
        "alg1": run.of(DynaTree),
        "fixed": run.of(Fixed),
        "linear": run.of(Linear),
    }
    prompt = tiny_models.prompt_tokens(tiny_models.pair(name), PROMPT)
    steps = simulate(oracle(tiny_models, name, dtype, run), prompt, method, rules[method], run.max_new_tokens)
    score.add(assert_same_rounds(found, steps))


def test_every_sampled_round_is_the_reference_s_round(tiny_models: TinyModels) -> None:
    score = Score()
    compare_any(tiny_models, score)
    assert score.rounds > 10 * score.discarded
    assert score.rounds > 160
    assert score.deep > 10
