"""A run's events and their order, its clocks and figures, pauses and ends."""

import itertools
import threading
from dataclasses import replace
from itertools import count, islice

import msgspec
import pytest
from transformers import AutoTokenizer

from decoder import RunConfig, Steering, decode
from decoder.analysis.metrics import fold
from decoder.events import End, Round, Run, Start, Summary, decode_line, encode
from decoder.system.device import Stopwatch
from tests.decoder.makers import METHODS, Played, TinyModels, methods_of, play
from tests.decoder.session.all_methods import CONFIG, PROMPT, TREES, steered


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


def test_a_method_starts_once_then_rounds_then_ends_once(played: Played) -> None:
    for method in METHODS:
        own = [event for event in played.events if getattr(event, "method", None) == method]
        kinds = [type(event) for event in own if isinstance(event, Start | Round | End)]
        assert kinds == [Start, *[Round] * len(played.rounds(method)), End], method


def test_rounds_count_from_0_and_positions_add_up(played: Played) -> None:
    for method in METHODS:
        rounds = played.rounds(method)
        assert [event.round for event in rounds] == list(range(len(rounds))), method
        lengths = [len(event.committed) for event in rounds]
        assert [event.position for event in rounds] == [sum(lengths[:index]) for index in range(len(rounds))], method


def test_every_event_survives_the_way_to_a_file(played: Played) -> None:
    for number, event in enumerate(played.events, 1):
        if isinstance(event, Round):
            assert decode_line(encode(event), number) == event


def test_the_pieces_of_text_are_the_text(tiny_models: TinyModels, played: Played) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_models.pair("neox").target)
    prompt = tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT)
    for method in METHODS:
        whole = tokenizer.decode(prompt + played.tokens(method), skip_special_tokens=True)
        assert "".join(event.text for event in played.rounds(method)) == whole[len(PROMPT) :], method


def test_methods_without_a_tree_write_the_root_alone(tiny_models: TinyModels, played: Played) -> None:
    for method in ("ar", "hf"):
        text = [*tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT)]
        for event in played.rounds(method):
            assert (event.tokens, event.parents, event.logprobs, event.accepted) == ([text[-1]], [-1], [0.0], [])
            text += event.committed


def test_a_burst_is_the_accepted_path_and_one_token_more(played: Played) -> None:
    for method in ("ar", *TREES):
        *rounds, last = played.rounds(method)
        for event in rounds:
            assert event.committed[:-1] == [event.tokens[node] for node in event.accepted], method
        path = [last.tokens[node] for node in last.accepted]
        assert last.committed == [*path, last.committed[-1]][: len(last.committed)], method


def test_the_accepted_nodes_are_a_path_from_the_root(played: Played) -> None:
    for method in TREES:
        for event in played.rounds(method):
            path = event.accepted if method == "alg1" else [0, *event.accepted]
            assert [event.parents[node] for node in path] == [-1, *path][: len(path)], method


def test_knobs_are_written_by_methods_that_have_some(played: Played) -> None:
    with_knobs = {method for method in METHODS if all(event.knobs for event in played.rounds(method))}
    without = {method for method in METHODS if not any(event.knobs for event in played.rounds(method))}
    adaptive = {"dynatree", "auto", "alg1"}
    assert (with_knobs, without) == (adaptive, {*METHODS} - adaptive)


def test_the_first_method_has_a_round_before_another_begins(tiny_models: TinyModels) -> None:
    pair = tiny_models.engine("neox")
    methods = ("dynatree", "auto", "ar")
    kinds = [
        (type(event), event.method)
        for event in decode(pair, "The tree grows", RunConfig(methods, 12))
        if isinstance(event, Start | Round)
    ]
    assert kinds[:6] == [(kind, name) for name in methods for kind in (Start, Round)]


def test_a_method_that_is_stepped_begins_though_those_before_it_had_no_round(tiny_models: TinyModels) -> None:
    pair = tiny_models.engine("neox")
    steering = Steering()
    steering.paused, steering.watched = True, "ar"
    events = decode(pair, "The tree grows", RunConfig(("dynatree", "auto", "ar"), 12), steering)
    begun = [event.method for event in islice(events, 4) if isinstance(event, Start)]
    assert begun == ["dynatree", "auto", "ar"]
    steering.stopped = True
    assert not any(isinstance(event, Round) for event in events)


def test_clocks_never_run_backwards(played: Played) -> None:
    for method in METHODS:
        rounds = played.rounds(method)
        for before, after in itertools.pairwise(rounds):
            assert before.t < after.t, method
            assert before.wall_s < after.wall_s, method
        assert all(0 <= event.t <= event.wall_s for event in rounds), method


def test_the_parts_of_a_round_are_no_longer_than_the_round(played: Played) -> None:
    for method in ("ar", *TREES):
        ends = [0.0, *(event.t for event in played.rounds(method))]
        for event, before in zip(played.rounds(method), ends, strict=False):
            parts = [event.draft_s, event.verify_s, event.commit_s]
            assert all(part is not None and part >= 0 for part in parts), method
            assert sum(part or 0.0 for part in parts) <= event.t - before + 1e-9, method


def test_the_first_burst_of_hf_is_its_prefill(played: Played) -> None:
    first, second = played.rounds("hf")[:2]
    assert first.t == 0
    assert second.t > 0
    assert played.figures("hf").prefill_s
    assert played.figures("hf").acceptance_rate is None


def test_the_summary_is_the_fold_of_the_events(played: Played) -> None:
    folded = fold(played.events[:-1]).figures()
    for method in METHODS:
        figures = played.figures(method)
        assert msgspec.structs.replace(figures, near_tie=None, first_difference_gap=None) == folded[method], (
            "the models alone judge near ties"
        )


def test_the_decode_time_is_that_of_the_last_round(played: Played) -> None:
    for method in METHODS:
        assert played.figures(method).decode_s == played.rounds(method)[-1].t, method


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
            tiny_models.engine("neox"),
            PROMPT,
            RunConfig(("ar",), 4),
            Steering(speed=0.001),
        )
    )
    *_, before, last = [event for event in events if isinstance(event, Round)]
    assert last.wall_s >= 50 * before.t
    assert last.t < last.wall_s / 25


def test_a_paused_run_waits(tiny_models: TinyModels) -> None:
    steering = Steering()
    steering.paused = True
    timer = threading.Timer(0.2, lambda: setattr(steering, "paused", False))
    events = decode(tiny_models.engine("neox"), PROMPT, RunConfig(("ar",), 2), steering)
    while not isinstance(next(events), Start):
        pass
    timer.start()
    first = next(events)
    timer.join()
    assert isinstance(first, Round)
    assert first.wall_s > 0.2 > first.t
    assert isinstance(list(events)[-1], Summary)


@pytest.mark.parametrize("method", METHODS)
def test_a_stopped_run_ends_after_the_round_in_progress(tiny_models: TinyModels, method: str) -> None:
    config = replace(CONFIG, methods=(method,))
    played = steered(tiny_models, config, 2, lambda steering: setattr(steering, "stopped", True), "float32")
    assert len(played.rounds(method)) == 2
    assert played.end(method).reason == "stopped"
    assert played.figures(method).rounds == 2


def test_a_stop_ends_every_method_and_the_run_is_summed_up(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = count(step=0.001)
    monkeypatch.setattr(Stopwatch, "now", lambda _: next(times))
    played = steered(tiny_models, CONFIG, 2, lambda steering: setattr(steering, "stopped", True), "float32")
    stop = played.events.index(played.rounds("dynatree")[1])
    assert not any(isinstance(event, Round) for event in played.events[stop + 1 :])
    assert {method: played.end(method).reason for method in METHODS} == dict.fromkeys(METHODS, "stopped")
    assert isinstance(played.events[-1], Summary)


def test_a_run_stopped_before_it_begins_has_no_rounds(tiny_models: TinyModels) -> None:
    steering = Steering()
    steering.stopped = True
    played = Played(list(decode(tiny_models.engine("neox"), PROMPT, CONFIG, steering)))
    assert not any(played.rounds(method) for method in METHODS)
    assert played.figures("ar").committed == 0


def test_a_run_that_nobody_reads_to_its_end_leaves_no_thread(tiny_models: TinyModels) -> None:
    before = threading.active_count()
    events = decode(tiny_models.engine("neox"), PROMPT, CONFIG)
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
    again = play(tiny_models.loaded(pair, "float32"), config)
    expected = tiny_models.generate(pair, "float32", PROMPT, 40)
    assert {method: again.tokens(method) for method in methods} == dict.fromkeys(methods, expected)
