"""Clocks and figures of a run, slow motion, and pauses."""

import itertools
import threading

import msgspec

from decoder import RunConfig, Steering, decode
from decoder.analysis.metrics import fold
from decoder.events import End, Round, Start, Summary
from tests.decoder.makers import METHODS, Played, TinyModels
from tests.decoder.session.all_methods import PROMPT, TREES


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
            tiny_models.loaded(tiny_models.pair("neox"), "float32"),
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
    events = decode(tiny_models.loaded(tiny_models.pair("neox"), "float32"), PROMPT, RunConfig(("ar",), 2), steering)
    while not isinstance(next(events), Start):
        pass
    timer.start()
    first = next(events)
    timer.join()
    assert isinstance(first, Round)
    assert first.wall_s > 0.2 > first.t
    assert isinstance(list(events)[-1], Summary)
