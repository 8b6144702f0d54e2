"""A run's order, figures, pauses and ends, and what is refused before it begins."""

import copy
import itertools
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import count, islice
from typing import Any

import numpy as np
import pytest
import torch

from decoder import DynaTree, RunConfig, Steering, decode
from decoder.errors import ConfigError, ModelError, PromptError
from decoder.events import Round, Run, Start, Summary
from decoder.forward.near_tie import Judge
from decoder.methods import WHOLE, same_until
from decoder.session.steering import NAP_S, SLEEP_S, SlowMotion, hold
from decoder.system.device import Stopwatch
from tests.decoder.makers import METHODS, PROMPT, Played, TinyModels, methods_of, play
from tests.decoder.session.all_methods import CONFIG, steered
from tests.tiny import CONTEXT

DIGITS = "0123456789" * 3 * CONTEXT
"""Each digit is one token."""


def test_the_run_says_what_was_asked(tiny_models: TinyModels, played: Played) -> None:
    run = played.events[0]
    assert isinstance(run, Run)
    assert (run.prompt, run.max_new_tokens, run.device, run.dtype) == (PROMPT, 40, "cpu", "float32")
    assert run.prompt_tokens == tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT)
    assert list(run.methods) == list(METHODS)
    assert run.methods["dynatree"]["window"] == 2
    assert run.methods["fixed"] == {"depth": 5, "branching": 2, "tau": 0.05, "n_max": 256}


def test_a_method_that_is_stepped_begins_though_those_before_it_had_no_round(tiny_models: TinyModels) -> None:
    steering = Steering()
    steering.paused, steering.watched = True, "ar"
    events = decode(tiny_models.engine("neox"), PROMPT, RunConfig(("dynatree", "auto", "ar"), 12), steering)
    begun = [event.method for event in islice(events, 4) if isinstance(event, Start)]
    assert begun == ["dynatree", "auto", "ar"]
    steering.stopped = True
    assert not any(isinstance(event, Round) for event in events)


def test_a_method_that_draws_by_itself_is_compared_where_all_is_greedy(tiny_models: TinyModels) -> None:
    sampled = play(tiny_models.engine("neox"), RunConfig(("ar", "hf", "linear"), 20, temperature=1.0))
    assert (sampled.figures("hf").identical_to_ar, sampled.figures("hf").first_difference) == (None, None)
    assert sampled.figures("hf").tokens_per_second is not None
    assert sampled.figures("linear").identical_to_ar
    assert play(tiny_models.engine("neox"), RunConfig(("ar", "hf"), 20)).figures("hf").identical_to_ar


# Ends of a run


def stop(steering: Steering, number: int) -> None:
    steering.stopped = number == 2


@pytest.mark.parametrize("method", METHODS)
def test_a_stopped_run_ends_after_the_round_in_progress(tiny_models: TinyModels, method: str) -> None:
    played = steered(tiny_models.engine("neox"), replace(CONFIG, methods=(method,)), stop)
    assert len(played.rounds(method)) == 2
    assert played.end(method).reason == "stopped"
    assert played.figures(method).rounds == 2


def test_a_stop_ends_all_methods_and_sums_the_run_up(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    times = count(step=0.001)
    monkeypatch.setattr(Stopwatch, "now", lambda _: next(times))
    played = steered(tiny_models.engine("neox"), CONFIG, stop)
    last = played.events.index(played.rounds("dynatree")[1])
    assert not any(isinstance(event, Round) for event in played.events[last + 1 :])
    assert {method: played.end(method).reason for method in METHODS} == dict.fromkeys(METHODS, "stopped")
    assert isinstance(played.events[-1], Summary)


def test_a_run_that_nobody_reads_to_its_end_leaves_no_thread(tiny_models: TinyModels) -> None:
    before = threading.active_count()
    events = decode(tiny_models.engine("neox"), PROMPT, CONFIG)
    while not isinstance(next(events), Round):
        pass
    events.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


# Refusals


@pytest.mark.parametrize(
    ("prompt", "config", "error", "line"),
    [
        (DIGITS[: CONTEXT - 12], RunConfig(("ar",), 13), PromptError, r"\b12\b"),
        *(
            (DIGITS[:tokens], RunConfig(("ar",), 1), PromptError, f"{tokens} tokens")
            for tokens in (CONTEXT, CONTEXT + 1, 3 * CONTEXT)
        ),
        ("", RunConfig(("ar",), 1), PromptError, "empty"),
        (PROMPT, RunConfig(("ar", "warp"), 1), ConfigError, f"warp.*{', '.join(METHODS)}"),
    ],
    ids=["too little room", "a full context", "one token more", "three contexts", "empty", "an unknown method"],
)
def test_what_cannot_be_decoded_is_refused(
    tiny_models: TinyModels, prompt: str, config: RunConfig, error: type[PromptError], line: str
) -> None:
    with pytest.raises(error, match=line) as refusal:
        next(decode(tiny_models.engine("neox"), prompt, config))
    assert refusal.value.exit_code == 2


def test_what_transformers_refuses_is_told_in_a_line(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = tiny_models.engine("neox", "float64")
    monkeypatch.setattr(type(engine.pair.target.hf.module), "_is_stateful", True)
    line = r"hf does not run with target and draft: .*stateful.*; leave hf out of --m"
    with pytest.raises(ModelError, match=line) as refusal:
        list(decode(engine, PROMPT, RunConfig(("hf",), 4)))
    assert "\n" not in str(refusal.value)


def test_lone_surrogates_of_a_prompt_are_replaced(tiny_models: TinyModels) -> None:
    run = play(tiny_models.engine("neox"), RunConfig(("ar",), 4), "a\ud800b").events[0]
    assert isinstance(run, Run)
    assert run.prompt == "a\N{REPLACEMENT CHARACTER}b"
    assert run.prompt_tokens == tiny_models.prompt_tokens(tiny_models.pair("neox"), run.prompt)


# Pauses, and slow motion in few long sleeps, so that rounds between them run warm


def test_slow_motion_sleeps_and_leaves_decode_time_alone(tiny_models: TinyModels) -> None:
    events = decode(tiny_models.engine("neox"), PROMPT, RunConfig(("ar",), 4), Steering(speed=0.001))
    *_, before, last = [event for event in events if isinstance(event, Round)]
    assert last.wall_s >= 50 * before.t
    assert last.t < last.wall_s / 25


class Clock:
    """A fake clock: `sleep` advances it by the time slept, and each reading by a nanosecond."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.wakes: Callable[[], None] = lambda: None
        """Called during each sleep."""

    def perf_counter(self) -> float:
        self.now_s += 1e-9
        return self.now_s

    def sleep(self, seconds: float) -> None:
        assert 0 < seconds <= NAP_S
        self.now_s += seconds
        self.wakes()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("decoder.session.steering.time", clock)
    return clock


def slept(clock: Clock, motion: SlowMotion, decoded_s: float) -> float:
    before_s = clock.now_s
    motion.after(decoded_s)
    return clock.now_s - before_s


@pytest.mark.parametrize("speed", [1 / 2, 1 / 8, 1 / 64])
def test_a_show_takes_as_long_as_its_speed_says(clock: Clock, speed: float) -> None:
    motion = SlowMotion(Steering(speed=speed))
    rounds, round_s = 400, 0.003
    for _ in range(rounds):
        motion.after(round_s)
    assert rounds * round_s + clock.now_s == pytest.approx(rounds * round_s / speed, abs=SLEEP_S / speed)


@pytest.mark.parametrize(
    ("speed", "decoded_s", "sleeps_s"),
    [
        pytest.param(1 / 2, SLEEP_S / 2, [0, SLEEP_S, 0, SLEEP_S], id="short sleeps are saved up"),
        pytest.param(1 / 64, 0.003, [0.003 * 63], id="a long round is shown by itself"),
        pytest.param(1.0, 1.0, [0] * 100, id="at full speed nobody sleeps"),
        pytest.param(4.0, 1.0, [0] * 100, id="nor beyond it"),
    ],
)
def test_a_sleep_follows_each_round(clock: Clock, speed: float, decoded_s: float, sleeps_s: list[float]) -> None:
    motion = SlowMotion(Steering(speed=speed))
    assert [slept(clock, motion, decoded_s) for _ in sleeps_s] == pytest.approx(sleeps_s, abs=1e-6)


@pytest.mark.parametrize(("name", "value"), [("paused", True), ("stopped", True), ("speed", 1.0)])
def test_a_pause_a_stop_and_a_new_speed_end_the_sleep_and_what_is_left(clock: Clock, name: str, value: Any) -> None:
    steering = Steering(speed=1 / 64)
    motion, before = SlowMotion(steering), getattr(steering, name)
    clock.wakes = lambda: setattr(steering, name, value)
    assert slept(clock, motion, 10.0) == pytest.approx(NAP_S)
    setattr(steering, name, before)
    assert slept(clock, motion, 0.001) == 0


class Errands:
    """Idle work: `count` tasks, each of which takes `seconds`."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock, self.left, self._seconds = clock, 3, seconds

    def __call__(self) -> bool:
        if not self.left:
            return False
        self.left -= 1
        self._clock.now_s += self._seconds
        return True


def test_a_pause_is_used_for_what_is_to_be_done(clock: Clock) -> None:
    steering, errands = Steering(), Errands(clock, 1.0)
    steering.paused = True
    clock.wakes = lambda: setattr(steering, "paused", False)
    hold(steering, idle=errands)
    assert errands.left == 0
    assert clock.now_s == pytest.approx(3 + NAP_S)


# Half precision: texts differ only at near ties


@pytest.mark.parametrize(
    ("name", "prompt"),
    [
        ("qwen3", "A small model guesses; "),
        ("gpt2", "The tree grows"),
    ],
)
def test_in_bfloat16_whatever_differs_is_a_near_tie(tiny_models: TinyModels, name: str, prompt: str) -> None:
    methods = tuple(method for method in methods_of(name) if same_until(method, {}, 0) == WHOLE)
    played = tiny_models.play(tiny_models.pair(name), "bfloat16", prompt, RunConfig(methods, 24, dynatree=DynaTree()))
    for method in methods:
        figures = played.figures(method)
        assert len(played.tokens(method)) == 24
        assert figures.identical_to_ar is (played.tokens(method) == played.tokens("ar"))
        assert figures.near_tie is (None if figures.identical_to_ar else True)
        assert (figures.first_difference_gap is None) is figures.identical_to_ar


@pytest.mark.parametrize("name", ["neox", "llama"])
@torch.inference_mode()
def test_a_near_tie_is_within_the_error_of_the_pass_that_wrote_the_text(tiny_models: TinyModels, name: str) -> None:
    model = tiny_models.engine(name, "bfloat16").pair.target
    prefix = tiny_models.prompt_tokens(tiny_models.pair(name), PROMPT)
    exact = copy.deepcopy(model.hf.module).float()(torch.tensor([prefix])).logits[0]
    rows = range(len(prefix))
    found = model.forward(model.new_cache(len(prefix)), prefix, rows, np.tri(len(prefix), dtype=np.bool_))
    error = float((found - exact).abs().max())
    by_module = float((model.hf.module(torch.tensor([prefix])).logits[0].float() - exact).abs().max())
    assert 0 < error < by_module / 4
    scores, order = exact[-1].tolist(), exact[-1].argsort().tolist()
    for rivals in [*itertools.pairwise(order[::4]), (order[0], order[-1])]:
        gap = abs(scores[rivals[0]] - scores[rivals[1]])
        assert Judge(model)(prefix, rivals).near_tie is (gap <= 2 * error)
        assert Judge(model)(prefix, rivals, by_module=True).near_tie is (gap <= 2 * by_module)
