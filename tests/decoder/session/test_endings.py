"""Stopped and abandoned runs."""

import threading
from dataclasses import replace
from itertools import count

import pytest

from decoder import Steering, decode
from decoder.events import Round, Summary
from decoder.system.device import Stopwatch
from tests.decoder.makers import METHODS, Played, TinyModels, methods_of
from tests.decoder.session.all_methods import CONFIG, PROMPT, steered


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
