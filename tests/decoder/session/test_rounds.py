"""What a run tells of itself: forwards, knobs, clocks, endings, limits. All from the events."""

import copy
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from decoder import DynaTree, Fixed, Linear, RunConfig, Steering, decode
from decoder.analysis.metrics import fold
from decoder.draft.model_drafter import ModelDrafter
from decoder.errors import ConfigError, DeviceError, ModelError, PromptError
from decoder.events import LENGTH, End, Event, Round, Run, Start, Summary, decode_line, encode
from decoder.forward.near_tie import Judge
from decoder.knobs import MOST, KnobName
from decoder.methods import WHOLE, same_until
from decoder.session.host import HostSession
from decoder.tree import depths
from tests.decoder.makers import METHODS, Played, TinyModels, host_session, methods_of
from tests.decoder.session.round_comparison import assert_same_rounds
from tests.reference import simulate
from tests.tiny import CONTEXT

PROMPT = "The tree grows"
TREES = ("dynatree", "linear", "fixed", "alg1")
LIVELY = DynaTree(window=2, eta_d=2, eta_h=0.3, target_acceptance=0.4, rho_stop=0.02, tau=0.02, rho_deep=0.1)
"""History moves knobs often."""
CONFIG = RunConfig(METHODS, 40, dynatree=LIVELY)


@pytest.fixture(scope="module")
def played(tiny_models: TinyModels) -> Played:
    """All methods on one prompt."""
    return tiny_models.play(tiny_models.pair("neox"), "float32", PROMPT, CONFIG)


# The order of events


def test_a_run_begins_with_run_and_ends_with_summary(played: Played) -> None:
    assert [type(event) for event in played.events].count(Run) == 1
    assert [type(event) for event in played.events].count(Summary) == 1
    assert isinstance(played.events[0], Run)
    assert isinstance(played.events[-1], Summary)


def test_the_run_says_what_was_asked(tiny_models: TinyModels, played: Played) -> None:
    (run,) = [event for event in played.events if isinstance(event, Run)]
    assert (run.prompt, run.max_new_tokens, run.device, run.dtype) == (PROMPT, 40, "cpu", "float32")
    assert run.prompt_tokens == tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT)
    assert list(run.methods) == list(METHODS)
    assert run.methods["dynatree"]["window"] == 2
    assert run.methods["fixed"] == {"depth": 5, "branching": 2, "tau": 0.05, "n_max": 256}


@pytest.mark.parametrize("method", METHODS)
def test_a_method_starts_once_then_rounds_then_ends_once(played: Played, method: str) -> None:
    own = [event for event in played.events if getattr(event, "method", None) == method]
    kinds = [type(event) for event in own if isinstance(event, Start | Round | End)]
    assert kinds == [Start, *[Round] * len(played.rounds(method)), End]


@pytest.mark.parametrize("method", METHODS)
def test_rounds_count_from_0_and_positions_add_up(played: Played, method: str) -> None:
    rounds = played.rounds(method)
    assert [event.round for event in rounds] == list(range(len(rounds)))
    lengths = [len(event.committed) for event in rounds]
    assert [event.position for event in rounds] == [sum(lengths[:index]) for index in range(len(rounds))]


@pytest.mark.parametrize("method", METHODS)
def test_every_event_survives_the_way_to_a_file(played: Played, method: str) -> None:
    for number, event in enumerate(played.rounds(method), 1):
        assert decode_line(encode(event), number) == event


@pytest.mark.parametrize("method", METHODS)
def test_the_pieces_of_text_are_the_text(tiny_models: TinyModels, played: Played, method: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_models.pair("neox").target)
    prompt = tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT)
    whole = tokenizer.decode(prompt + played.tokens(method), skip_special_tokens=True)
    assert "".join(event.text for event in played.rounds(method)) == whole[len(PROMPT) :]


@pytest.mark.parametrize("method", ["ar", "hf"])
def test_methods_without_a_tree_write_the_root_alone(tiny_models: TinyModels, played: Played, method: str) -> None:
    text = tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT)
    for event in played.rounds(method):
        assert (event.tokens, event.parents, event.logprobs, event.accepted) == ([text[-1]], [-1], [0.0], [])
        text += event.committed


@pytest.mark.parametrize("method", ["ar", *TREES])
def test_a_burst_is_the_accepted_path_and_one_token_more(played: Played, method: str) -> None:
    *rounds, last = played.rounds(method)
    for event in rounds:
        assert event.committed[:-1] == [event.tokens[node] for node in event.accepted]
    assert last.committed == [*[last.tokens[node] for node in last.accepted], last.committed[-1]][: len(last.committed)]


@pytest.mark.parametrize("method", TREES)
def test_the_accepted_nodes_are_a_path_from_the_root(played: Played, method: str) -> None:
    for event in played.rounds(method):
        path = event.accepted if method == "alg1" else [0, *event.accepted]
        assert [event.parents[node] for node in path] == [-1, *path][: len(path)]


def test_knobs_are_written_by_methods_that_have_some(played: Played) -> None:
    with_knobs = {method for method in METHODS if all(event.knobs for event in played.rounds(method))}
    without = {method for method in METHODS if not any(event.knobs for event in played.rounds(method))}
    adaptive = {"dynatree", "auto", "alg1"}
    assert (with_knobs, without) == (adaptive, {*METHODS} - adaptive)


# Forward passes


@contextmanager
def counted(model: Any) -> Iterator[list[int]]:
    """A list that grows by one entry, the number of rows, with every forward pass of the model."""
    passes: list[int] = []
    right = model.runs_by

    def forward(cache: Any, tokens: Sequence[int], *rest: Any) -> Any:
        passes.append(len(tokens))
        return right.forward(cache, tokens, *rest)

    def read(cache: Any, tokens: Sequence[int]) -> Any:
        passes.append(len(tokens))
        return right.read(cache, tokens)

    model.runs_by = SimpleNamespace(forward=forward, read=read, new_cache=right.new_cache)
    yield passes
    model.runs_by = right


@pytest.mark.parametrize("method", ["ar", *TREES])
def test_the_target_runs_once_a_round_and_twice_in_algorithm_1(played: Played, method: str) -> None:
    assert {event.target_forwards for event in played.rounds(method)} == {2 if method == "alg1" else 1}


@pytest.mark.parametrize("method", ["ar", *TREES])
def test_the_forward_passes_told_are_those_that_were_run(tiny_models: TinyModels, method: str) -> None:
    engine = tiny_models.loaded(tiny_models.pair("llama"), "float32")
    with counted(engine.pair.target) as target, counted(engine.pair.draft_model) as draft:
        seen = (0, 0)
        for event in decode(engine, PROMPT, replace(CONFIG, methods=(method,))):
            if isinstance(event, Start):
                seen = (len(target), len(draft))
            if isinstance(event, Round):
                assert (len(target) - seen[0], len(draft) - seen[1]) == (event.target_forwards, event.draft_forwards)
                seen = (len(target), len(draft))
        assert (len(target), len(draft)) == seen


@pytest.mark.parametrize("method", ["ar", *TREES])
def test_the_summary_adds_the_forward_passes_up(played: Played, method: str) -> None:
    figures, rounds = played.figures(method), played.rounds(method)
    assert figures.target_forwards == sum(event.target_forwards or 0 for event in rounds)
    assert figures.draft_forwards == sum(event.draft_forwards or 0 for event in rounds)


@pytest.mark.parametrize("method", TREES)
@pytest.mark.parametrize("name", ["neox", "neox-strange"])
def test_the_draft_runs_at_most_once_a_level_and_once_more(tiny_models: TinyModels, name: str, method: str) -> None:
    rounds = tiny_models.play(tiny_models.pair(name), "float32", PROMPT, CONFIG).rounds(method)
    whole = [event for event in rounds if event.limited_by != LENGTH]
    assert len(whole) > 4
    for event in whole:
        levels = max(depths(event.parents)) + (method == "alg1")
        assert event.draft_forwards is not None
        assert levels <= event.draft_forwards <= levels + 1


def test_growing_for_the_best_nodes_takes_one_forward_a_grown_level(tiny_models: TinyModels) -> None:
    tree = DynaTree(branching=(3, 3, 3), rho_stop=0, rho_deep=0, tau=0, d0=4, d_max=5, n_max=12, selection="best")
    pair = tiny_models.pair("neox")
    config = RunConfig(("dynatree",), 20, dynatree=tree)
    steps = simulate(tiny_models.oracle(pair, "float64"), tiny_models.prompt_tokens(pair, PROMPT), "dynatree", tree, 20)
    for event, step in zip(tiny_models.play(pair, "float64", PROMPT, config).rounds("dynatree"), steps, strict=True):
        assert event.draft_forwards is not None
        assert event.draft_forwards <= step.levels + 1


@pytest.mark.parametrize("n_max", [1, 3, 8, 20])
def test_the_best_nodes_are_those_of_a_tree_that_grows_without_a_limit(tiny_models: TinyModels, n_max: int) -> None:
    tree = DynaTree(branching=(3, 3, 3), rho_stop=0, rho_deep=0, tau=0, d0=4, d_max=5, n_max=4096, selection="best")
    pair = tiny_models.loaded(tiny_models.pair("neox"), "float64")
    trees = []
    for rules in (tree, replace(tree, n_max=n_max)):
        session = host_session(pair, tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT), 8, rules)
        session.prefill()
        trees.append(session.step(()).tree)
    whole, best = trees
    assert best.tokens == whole.subtree(whole.most_probable(n_max)).tokens
    assert len(whole) > 200


def test_the_largest_rules_need_no_more_room_than_a_tree_has(tiny_models: TinyModels) -> None:
    largest = DynaTree(d0=1, d_max=MOST, branching=(3, 3, 3), n_max=MOST, rho_stop=0, tau=0, selection="best")
    pair = tiny_models.loaded(tiny_models.pair("neox"), "float32")
    session = host_session(pair, tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT), 8, largest)
    assert isinstance(session.proposer, ModelDrafter)
    rows: Any = session.proposer.passes.cache
    assert rows.store.shape[3] < 2 * MOST


def test_a_tree_that_tries_more_than_it_keeps_finds_room(tiny_models: TinyModels) -> None:
    rules = DynaTree(branching=(3, 3, 3), rho_stop=0, rho_deep=0, tau=0, d0=4, d_max=5, n_max=40, selection="best")
    pair = tiny_models.pair("neox")
    config = RunConfig(("dynatree", "ar"), 20, dynatree=rules)
    played = tiny_models.play(pair, "float64", PROMPT, config)
    assert played.tokens("dynatree") == played.tokens("ar")
    session = host_session(tiny_models.loaded(pair, "float64"), [1, 2, 3], 8, rules)
    session.prefill()
    session.step(())
    assert isinstance(session.proposer, ModelDrafter)
    rows: Any = session.proposer.passes.cache
    assert rows.store.shape[3] > 3 + 8 + 1 + 40


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")]
)
def test_a_full_memory_is_one_line_on_a_cpu_too(
    tiny_models: TinyModels, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise error

    monkeypatch.setattr(HostSession, "_reserve", full)
    with pytest.raises(DeviceError, match="the memory of cpu is full; choose smaller models"):
        list(decode(tiny_models.loaded(tiny_models.pair("neox"), "float32"), PROMPT, RunConfig(("ar",), 4)))


def test_ar_never_runs_the_draft(played: Played) -> None:
    assert played.figures("ar").draft_forwards == 0


# Clocks and figures


@pytest.mark.parametrize("method", METHODS)
def test_clocks_never_run_backwards(played: Played, method: str) -> None:
    rounds = played.rounds(method)
    for before, after in itertools.pairwise(rounds):
        assert before.t < after.t
        assert before.wall_s < after.wall_s
    assert all(0 <= event.t <= event.wall_s for event in rounds)


@pytest.mark.parametrize("method", ["ar", *TREES])
def test_the_parts_of_a_round_are_no_longer_than_the_round(played: Played, method: str) -> None:
    ends = [0.0, *(event.t for event in played.rounds(method))]
    for event, before in zip(played.rounds(method), ends, strict=False):
        parts = [event.draft_s, event.verify_s, event.commit_s]
        assert all(part is not None and part >= 0 for part in parts)
        assert sum(part or 0.0 for part in parts) <= event.t - before + 1e-9


def test_the_first_burst_of_hf_is_its_prefill(played: Played) -> None:
    first, second = played.rounds("hf")[:2]
    assert first.t == 0
    assert second.t > 0
    assert played.figures("hf").prefill_s
    assert played.figures("hf").acceptance_rate is None


@pytest.mark.parametrize("method", METHODS)
def test_the_summary_is_the_fold_of_the_events(played: Played, method: str) -> None:
    told = msgspec.structs.replace(played.figures(method), near_tie=None, first_difference_gap=None)  # by models
    assert told == fold(played.events[:-1]).figures()[method]


@pytest.mark.parametrize("method", METHODS)
def test_the_decode_time_is_that_of_the_last_round(played: Played, method: str) -> None:
    assert played.figures(method).decode_s == played.rounds(method)[-1].t


def test_the_method_with_the_least_decode_time_goes_next(played: Played) -> None:
    clocks, stalled = dict.fromkeys(METHODS, 0.0), dict.fromkeys(METHODS, 0.0)
    for event in played.events:
        if isinstance(event, Round):
            assert clocks[event.method] == min(clocks.values())
            stalled[event.method] += event.stalled_s or 0.0
            clocks[event.method] = event.t - stalled[event.method]
        if isinstance(event, End):
            del clocks[event.method]


def test_slow_motion_sleeps_and_leaves_decode_time_alone(tiny_models: TinyModels) -> None:
    events = list(
        decode(
            tiny_models.loaded(tiny_models.pair("neox"), "float32"),
            PROMPT,
            RunConfig(("ar",), 4),
            Steering(speed=0.002),
        )
    )
    *_, before, last = [event for event in events if isinstance(event, Round)]
    assert last.wall_s >= 100 * before.t
    assert last.t < last.wall_s / 50


def test_a_paused_run_waits(tiny_models: TinyModels) -> None:
    steering = Steering()
    steering.paused = True
    timer = threading.Timer(0.2, lambda: setattr(steering, "paused", False))
    events = decode(tiny_models.loaded(tiny_models.pair("neox"), "float32"), PROMPT, RunConfig(("ar",), 2), steering)
    while not isinstance(next(events), Start):
        pass
    timer.start()
    first = next(events)
    timer.join()
    assert isinstance(first, Round)
    assert first.wall_s > 0.2 > first.t
    assert isinstance(list(events)[-1], Summary)


# Knobs


def steered(
    tiny_models: TinyModels, config: RunConfig, at: int, turn: Callable[[Steering], object], dtype: str = "float64"
) -> Played:
    """A run in which the user turns knobs when the first method's round `at - 1` is over."""
    steering, events = Steering(), list[Event]()
    for event in decode(tiny_models.loaded(tiny_models.pair("neox"), dtype), PROMPT, config, steering):
        events.append(event)
        if isinstance(event, Round) and event.method == config.methods[0] and event.round == at - 1:
            turn(steering)
    return Played(events)


def turning(turns: list[tuple[KnobName, float]]) -> Callable[[Steering], object]:
    """Turns these knobs, one after the other."""

    def turn(steering: Steering) -> None:
        for name, value in turns:
            steering.turn(name, value)

    return turn


TURNS: dict[str, list[tuple[KnobName, float]]] = {
    "tau_h": [("tau_h", 0.6)],
    "tau_l": [("tau_l", 0.8)],
    "d0": [("d0", 1.0)],
    "history off": [("history", 0)],
    "several": [("tau_l", 0.2), ("tau_h", 0.3), ("d0", 3.7)],
    "beyond the bounds": [("d0", 99), ("tau_h", -3), ("tau_l", 7)],
}


@pytest.mark.parametrize("method", ["dynatree", "alg1"])
@pytest.mark.parametrize("turns", TURNS.values(), ids=TURNS)
def test_turned_knobs_are_in_force_from_the_next_round(
    tiny_models: TinyModels, turns: list[tuple[KnobName, float]], method: str
) -> None:
    config = replace(CONFIG, methods=(method,))
    pair = tiny_models.pair("neox")
    played = steered(tiny_models, config, 4, turning(turns))
    prompt = tiny_models.prompt_tokens(pair, PROMPT)
    steps = simulate(tiny_models.oracle(pair, "float64"), prompt, method, LIVELY, config.max_new_tokens, {4: turns})
    assert_same_rounds(played.rounds(method), steps)


@pytest.mark.parametrize("turns", TURNS.values(), ids=TURNS)
def test_turned_knobs_leave_the_text_alone(tiny_models: TinyModels, turns: list[tuple[KnobName, float]]) -> None:
    config = replace(CONFIG, methods=("dynatree", "alg1"))
    played = steered(tiny_models, config, 2, turning(turns))
    expected = tiny_models.generate(tiny_models.pair("neox"), "float64", PROMPT, config.max_new_tokens)
    assert (played.tokens("dynatree"), played.tokens("alg1")) == (expected, expected)


def test_a_turned_knob_is_told_before_its_first_round(tiny_models: TinyModels) -> None:
    config = replace(CONFIG, methods=("dynatree",)).with_rules("dynatree", replace(LIVELY, history=False))
    played = steered(tiny_models, config, 4, lambda steering: steering.turn("tau_h", 0.6))
    (knob,) = played.turned("dynatree", "user")
    assert (knob.round, knob.name, knob.old, knob.new) == (4, "tau_h", 0.9, 0.6)
    rounds = [event.round for event in played.events[: played.events.index(knob)] if isinstance(event, Round)]
    assert rounds[-1] == 3
    seen = [event.knobs.tau_h for event in played.rounds("dynatree") if event.knobs]
    assert seen == [0.9] * 4 + [0.6] * (len(seen) - 4)


def test_a_knob_turned_beyond_its_bounds_tells_the_value_that_it_took(tiny_models: TinyModels) -> None:
    config = replace(CONFIG, methods=("dynatree",)).with_rules("dynatree", replace(LIVELY, history=False))
    played = steered(tiny_models, config, 1, lambda steering: steering.turn("d0", 99))
    (knob,) = played.turned("dynatree", "user")
    assert (knob.old, knob.new) == (5.0, 7.0)


def test_knobs_turned_before_the_run_count_from_its_first_round(tiny_models: TinyModels) -> None:
    steering = Steering()
    steering.turn("d0", 2)
    config = replace(CONFIG, methods=("dynatree", "alg1"))
    played = Played(list(decode(tiny_models.loaded(tiny_models.pair("neox"), "float64"), PROMPT, config, steering)))
    for method in config.methods:
        assert [(knob.round, knob.new) for knob in played.turned(method, "user")] == [(0, 2)]
        knobs = played.rounds(method)[0].knobs
        assert knobs is not None
        assert knobs.d0 == 2


def test_every_method_with_knobs_applies_a_turn_once(tiny_models: TinyModels) -> None:
    played = steered(tiny_models, CONFIG, 2, lambda steering: steering.turn("tau_l", 0.3), "float32")
    assert {method: len(played.turned(method, "user")) for method in METHODS} == {
        "dynatree": 1,
        "auto": 1,
        "alg1": 1,
        "ar": 0,
        "linear": 0,
        "fixed": 0,
        "bestfirst": 0,
        "delayed": 0,
        "streaming": 0,
        "hf": 0,
    }


def test_history_switched_off_leaves_the_knobs_where_they_are(tiny_models: TinyModels) -> None:
    config = replace(CONFIG, methods=("dynatree",))
    played = steered(tiny_models, config, 4, lambda steering: steering.turn("history", 0))
    after = [event.knobs for event in played.rounds("dynatree")[4:]]
    assert len(set(map(str, after))) == 1
    assert all(knob.round <= 4 for knob in played.turned("dynatree", "history"))
    (knob,) = played.turned("dynatree", "user")
    assert (knob.name, knob.old, knob.new) == ("history", 1, 0)


@pytest.mark.parametrize("method", ["dynatree", "alg1"])
@pytest.mark.parametrize("name", ["neox", "llama", "neox-strange"])
def test_history_tells_when_the_used_depth_changes_or_tau_h_has_moved_by_a_hundredth(
    tiny_models: TinyModels, name: str, method: str
) -> None:
    played = tiny_models.play(tiny_models.pair(name), "float64", PROMPT, RunConfig((method,), 40, dynatree=LIVELY))
    knobs = [event.knobs for event in played.rounds(method) if event.knobs]
    told = {(knob.name, knob.round): knob for knob in played.turned(method, "history")}
    noted = knobs[0].tau_h
    for number, (before, now) in enumerate(itertools.pairwise(knobs), 1):
        changed = int(before.d0 + 0.5) != int(now.d0 + 0.5)
        assert (("d0", number) in told) == changed
        if changed:
            assert told["d0", number].new == now.d0
        moved = abs(now.tau_h - noted)
        if abs(moved - 0.01) > 1e-9:
            assert (("tau_h", number) in told) == (moved > 0.01)
        if ("tau_h", number) in told:
            assert (told["tau_h", number].old, told["tau_h", number].new) == (noted, now.tau_h)
            noted = now.tau_h
    assert told


def test_history_rests_until_its_window_is_full(tiny_models: TinyModels) -> None:
    tree = replace(LIVELY, window=5)
    played = tiny_models.play(
        tiny_models.pair("neox-strange"), "float64", PROMPT, RunConfig(("dynatree",), 20, dynatree=tree)
    )
    d0 = [event.knobs.d0 for event in played.rounds("dynatree") if event.knobs]
    assert d0[:5] == [5.0] * 5
    assert d0[5] != 5.0


def test_history_starts_afresh_with_every_run(tiny_models: TinyModels) -> None:
    pair, config = tiny_models.loaded(tiny_models.pair("neox"), "float64"), replace(CONFIG, methods=("dynatree",))
    first, second = (Played(list(decode(pair, PROMPT, config))) for _ in range(2))
    assert [event.knobs for event in first.rounds("dynatree")] == [event.knobs for event in second.rounds("dynatree")]


# Endings


@pytest.mark.parametrize("method", METHODS)
def test_a_stopped_run_ends_after_the_round_in_progress(tiny_models: TinyModels, method: str) -> None:
    config = replace(CONFIG, methods=(method,))
    played = steered(tiny_models, config, 2, lambda steering: setattr(steering, "stopped", True), "float32")
    assert len(played.rounds(method)) == 2
    assert played.end(method).reason == "stopped"
    assert played.figures(method).rounds == 2


def test_a_stop_ends_every_method_and_the_run_is_summed_up(tiny_models: TinyModels) -> None:
    played = steered(tiny_models, CONFIG, 2, lambda steering: setattr(steering, "stopped", True), "float32")
    stop = played.events.index(played.rounds("dynatree")[1])
    assert not any(isinstance(event, Round) for event in played.events[stop + 1 :])
    assert {method: played.end(method).reason for method in METHODS} == dict.fromkeys(METHODS, "stopped")
    assert isinstance(played.events[-1], Summary)


def test_a_run_stopped_before_it_begins_has_no_rounds(tiny_models: TinyModels) -> None:
    steering = Steering()
    steering.stopped = True
    played = Played(list(decode(tiny_models.loaded(tiny_models.pair("neox"), "float32"), PROMPT, CONFIG, steering)))
    assert not any(played.rounds(method) for method in METHODS)
    assert played.figures("ar").committed == 0


def test_a_run_that_nobody_reads_to_its_end_leaves_no_thread(tiny_models: TinyModels) -> None:
    before = threading.active_count()
    events = decode(tiny_models.loaded(tiny_models.pair("neox"), "float32"), PROMPT, CONFIG)
    while not isinstance(next(events), Round):
        pass
    events.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_an_abandoned_run_does_not_disturb_the_next(tiny_models: TinyModels) -> None:
    pair, methods = tiny_models.pair("gpt2"), methods_of("gpt2")
    config = replace(CONFIG, methods=methods)
    for event in decode(tiny_models.loaded(pair, "float32"), PROMPT, config):
        if isinstance(event, Round) and event.round == 2:
            break
    again = Played(list(decode(tiny_models.loaded(pair, "float32"), PROMPT, config)))
    expected = tiny_models.generate(pair, "float32", PROMPT, 40)
    assert {method: again.tokens(method) for method in methods} == dict.fromkeys(methods, expected)


# The context's limit and bad prompts


def long_prompt(tiny_models: TinyModels, name: str, tokens: int) -> str:
    """A prompt of exactly so many tokens: digits are tokens of their own."""
    prompt = ("0123456789" * CONTEXT)[:tokens]
    assert len(tiny_models.prompt_tokens(tiny_models.pair(name), prompt)) == tokens
    return prompt


@pytest.mark.parametrize(("name", "method"), [(name, each) for name in ("neox", "gpt2") for each in methods_of(name)])
def test_a_text_may_fill_the_context_to_its_last_position(tiny_models: TinyModels, name: str, method: str) -> None:
    pair, prompt = tiny_models.pair(name), long_prompt(tiny_models, name, CONTEXT - 12)
    tree = DynaTree(rho_stop=0, rho_deep=0, tau=0, n_max=20)
    config = RunConfig(methods_of(name), 12, dynatree=tree, fixed=Fixed(tau=0, n_max=20))
    played = tiny_models.play(pair, "float32", prompt, config)
    assert played.tokens(method) == tiny_models.generate(pair, "float32", prompt, 12)


@pytest.mark.parametrize("method", TREES)
def test_trees_are_as_deep_as_the_context_allows_and_no_deeper(tiny_models: TinyModels, method: str) -> None:
    pair, prompt = tiny_models.pair("neox"), long_prompt(tiny_models, "neox", CONTEXT - 12)
    tree = DynaTree(rho_stop=0, rho_deep=0, tau=0, n_max=20, history=False)
    config = RunConfig((method,), 12, dynatree=tree, fixed=Fixed(tau=0, n_max=20))
    played = tiny_models.play(pair, "float64", prompt, config)
    parameters: dict[str, Any] = {
        "dynatree": tree,
        "alg1": tree,
        "fixed": config.of(Fixed),
        "linear": config.of(Linear),
    }
    ids = tiny_models.prompt_tokens(pair, prompt)
    assert_same_rounds(
        played.rounds(method), simulate(tiny_models.oracle(pair, "float64"), ids, method, parameters[method], 12)
    )
    for event in played.rounds(method):
        root = len(ids) + event.position - (method != "alg1")
        assert root + max(depths(event.parents)) < CONTEXT


@pytest.mark.parametrize("length", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("method", TREES)
def test_the_length_limit_shortens_what_is_told_of_a_tree_and_not_what_is_drafted(
    tiny_models: TinyModels, played: Played, method: str, length: int
) -> None:
    config = replace(CONFIG, methods=(method,), max_new_tokens=length)
    short = tiny_models.play(tiny_models.pair("neox"), "float32", PROMPT, config)
    assert short.tokens(method) == played.tokens(method)[:length]
    for told, event in zip(short.rounds(method), played.rounds(method), strict=False):
        levels = [depth + (method == "alg1") for depth in depths(event.parents)]
        kept = [node for node, level in enumerate(levels) if node == 0 or level < length - event.position]
        assert told.tokens == [event.tokens[node] for node in kept]
        assert told.draft_forwards == event.draft_forwards


def test_a_prompt_that_leaves_too_little_room_names_the_largest_number_that_fits(tiny_models: TinyModels) -> None:
    prompt = long_prompt(tiny_models, "neox", CONTEXT - 12)
    with pytest.raises(PromptError, match=r"\b12\b"):
        next(decode(tiny_models.loaded(tiny_models.pair("neox"), "float32"), prompt, RunConfig(("ar",), 13)))


@pytest.mark.parametrize("tokens", [CONTEXT, CONTEXT + 1, 3 * CONTEXT])
def test_a_prompt_as_long_as_the_context_is_refused(tiny_models: TinyModels, tokens: int) -> None:
    prompt = long_prompt(tiny_models, "neox", tokens)
    with pytest.raises(PromptError, match=f"{tokens} tokens"):
        next(decode(tiny_models.loaded(tiny_models.pair("neox"), "float32"), prompt, RunConfig(("ar",), 1)))


def test_an_empty_prompt_is_refused(tiny_models: TinyModels) -> None:
    with pytest.raises(PromptError, match="empty") as refusal:
        next(decode(tiny_models.loaded(tiny_models.pair("neox"), "float32"), "", RunConfig(("ar",), 1)))
    assert refusal.value.exit_code == 2


def test_lone_surrogates_of_a_prompt_are_replaced(tiny_models: TinyModels) -> None:
    pair = tiny_models.pair("neox")
    played = tiny_models.play(pair, "float32", "a\ud800b", RunConfig(("ar",), 4))
    run = played.events[0]
    assert isinstance(run, Run)
    assert run.prompt == "a\N{REPLACEMENT CHARACTER}b"
    assert run.prompt_tokens == tiny_models.prompt_tokens(pair, run.prompt)
    assert decode_line(encode(run), 1) == run


def test_an_unknown_method_is_refused_with_the_known_ones(tiny_models: TinyModels) -> None:
    with pytest.raises(ConfigError, match=f"warp.*{', '.join(METHODS)}"):
        next(decode(tiny_models.loaded(tiny_models.pair("neox"), "float32"), PROMPT, RunConfig(("ar", "warp"), 1)))


def test_models_that_transformers_refuses_are_refused_in_one_line(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = tiny_models.loaded(tiny_models.pair("neox"), "float64")
    monkeypatch.setattr(type(engine.pair.target.hf.module), "_is_stateful", True)
    with pytest.raises(
        ModelError, match=r"hf does not run with target and draft: .*stateful.*; leave hf out of --m"
    ) as refusal:
        list(decode(engine, PROMPT, RunConfig(("hf",), 4)))
    assert "\n" not in str(refusal.value)


# bfloat16


@pytest.mark.parametrize("name", ["neox", "llama", "qwen3", "gpt2", "neox-strange"])
@pytest.mark.parametrize("prompt", ["The tree grows", "T", "A small model guesses; "])
def test_in_bfloat16_whatever_differs_is_a_near_tie(tiny_models: TinyModels, name: str, prompt: str) -> None:
    methods = tuple(method for method in methods_of(name) if same_until(method, {}, 0) == WHOLE)
    played = tiny_models.play(tiny_models.pair(name), "bfloat16", prompt, RunConfig(methods, 48, dynatree=DynaTree()))
    for method in methods:
        figures = played.figures(method)
        assert len(played.tokens(method)) == 48
        assert figures.identical_to_ar is (played.tokens(method) == played.tokens("ar"))
        assert figures.near_tie is (None if figures.identical_to_ar else True)
        assert (figures.first_difference_gap is None) is figures.identical_to_ar


@pytest.mark.parametrize("name", ["qwen3", "gpt2"])
def test_a_near_tie_is_judged_by_the_scores_in_float32(tiny_models: TinyModels, name: str) -> None:
    model = tiny_models.loaded(tiny_models.pair(name), "bfloat16").pair.target
    prefix = tiny_models.prompt_tokens(tiny_models.pair(name), PROMPT)
    exact = tiny_models.oracle(tiny_models.pair(name), "float32").target_scores(tuple(prefix))
    order = sorted(range(len(exact)), key=exact.__getitem__)
    neighbours = [pair for pair in itertools.pairwise(order) if exact[pair[1]] - exact[pair[0]] < 1e-3]
    assert neighbours
    assert all(Judge(model)(prefix, rivals).near_tie for rivals in neighbours)
    assert not Judge(model)(prefix, (order[0], order[-1])).near_tie
    assert not Judge(model)(prefix, (order[-1], order[len(order) // 2])).near_tie


@pytest.mark.parametrize("name", ["neox", "llama"])
@torch.inference_mode()
def test_a_near_tie_is_within_the_error_of_the_forward_pass_that_wrote_the_text(
    tiny_models: TinyModels, name: str
) -> None:
    model = tiny_models.loaded(tiny_models.pair(name), "bfloat16").pair.target
    prefix = tiny_models.prompt_tokens(tiny_models.pair(name), PROMPT)
    exact = copy.deepcopy(model.hf.module).float()(torch.tensor([prefix])).logits[0]
    rows = range(len(prefix))
    found = model.forward(model.new_cache(len(prefix)), prefix, rows, np.tri(len(prefix), dtype=np.bool_))
    error = float((found - exact).abs().max())
    by_module = float((model.hf.module(torch.tensor([prefix])).logits[0].float() - exact).abs().max())
    assert 0 < error < by_module / 4
    scores, order = exact[-1].tolist(), exact[-1].argsort().tolist()
    for rivals in [*itertools.pairwise(order), (order[0], order[-1])]:
        gap = abs(scores[rivals[0]] - scores[rivals[1]])
        assert Judge(model)(prefix, rivals).near_tie is (gap <= 2 * error)
        assert Judge(model)(prefix, rivals, by_module=True).near_tie is (gap <= 2 * by_module)


@pytest.mark.parametrize("order", [1, -1])
def test_the_gap_of_two_tokens_is_the_higher_float32_score_minus_the_other(tiny_models: TinyModels, order: int) -> None:
    prefix = tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT)
    scores = tiny_models.oracle(tiny_models.pair("neox"), "float32").target_scores(tuple(prefix))
    first, second = (3, 250)[::order]
    verdict = Judge(tiny_models.loaded(tiny_models.pair("neox"), "float32").pair.target)(prefix, (first, second))
    assert verdict.gap == pytest.approx(abs(scores[3] - scores[250]), abs=1e-4)
