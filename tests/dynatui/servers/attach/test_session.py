"""A server that disappears, answers slowly or wrongly, returns or restarts: the session shows it and continues."""

import gc
import os
import threading
import time
import tracemalloc
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from dynatui.servers.attach.address import address
from dynatui.servers.attach.client import Client
from dynatui.servers.attach.events import Event, Gap, Opening, Reading, Server
from dynatui.servers.attach.figures import History, NotMetricsError, PageError, lines_of
from dynatui.servers.attach.servers import KINDS
from dynatui.servers.attach.session import Polling, watch
from dynatui.state.server_state import HISTORY_LENGTH, ServerState, applied
from tests.dynatui.servers.attach.page_server import Answer, dripping, page, raw, serving, text


class Scripted:
    """A server with a list of pages, and a fake clock that only its requests and pauses advance."""

    def __init__(self, *answers: str | PageError | Callable[[str], str], takes_s: float = 0.0) -> None:
        self.answers, self.takes_s = list(answers), takes_s
        self.now = 100.0
        self.asked: list[str] = []

    def page(self, url: str) -> str:
        self.now += self.takes_s
        self.asked.append(url)
        answer = self.answers.pop(0)
        if isinstance(answer, PageError):
            raise answer
        return answer(url) if callable(answer) else answer

    def pause(self, seconds: float) -> bool:
        assert seconds > 0
        self.now += seconds
        return not self.answers

    def clock(self) -> float:
        return self.now


def events(server: Scripted, url: str = "host:8000/metrics", interval_s: float = 1.0) -> list[Event]:
    return list(watch(Polling(address(url), interval_s), server.page, server.pause, server.clock))


def readings(found: list[Event]) -> list[Reading]:
    return [event for event in found if isinstance(event, Reading)]


ONE, TWO = page("vllm-1"), page("vllm-2")
AWAY = PageError("cannot reach host:8000: Connection refused")


def test_a_session_begins_with_its_opening_and_goes_on_with_the_server() -> None:
    opening, *found = events(Scripted(AWAY, AWAY, ONE, TWO))
    assert isinstance(opening, Opening)
    assert (opening.url, opening.interval_s) == ("http://host:8000", 1.0)
    assert [type(event) for event in found] == [Gap, Gap, Server, Reading, Reading]
    assert [(event.t, event.interval.seconds) for event in readings(found)] == [(2.0, 0.0), (3.0, 1.0)]


def test_a_server_that_goes_away_and_comes_back_is_a_gap_with_its_reason() -> None:
    *_, before, gap, after = events(Scripted(ONE, AWAY, TWO))
    assert isinstance(before, Reading)
    assert gap == Gap(t=1.0, reason="cannot reach host:8000: Connection refused")
    assert isinstance(after, Reading)
    assert (after.interval.seconds, after.interval.drafts, after.interval.drafted_per_second) == (2.0, 100, 150.0)


def test_a_server_that_begins_anew_counts_from_0() -> None:
    anew = TWO.replace("} 4880.0", "} 7.0").replace("} 14640.0", "} 21.0").replace("} 8230.0", "} 9.0")
    *_, last = events(Scripted(ONE, TWO, anew))
    assert isinstance(last, Reading)
    assert last.restarted
    assert (last.interval.drafts, last.interval.drafted, last.interval.accepted) == (7, 21, 9)
    assert last.session.drafts == 107


def without(name: str) -> str:
    return "".join(line for line in TWO.splitlines(keepends=True) if name not in line)


def test_a_metric_or_an_engine_that_is_missing_for_a_while_goes_on_where_it_was() -> None:
    _, middle, last = readings(events(Scripted(ONE, without("num_drafts"), TWO)))
    assert (middle.interval.drafts, middle.interval.tokens_per_round, middle.interval.drafted) == (None, None, 300)
    assert (last.interval.drafts, last.session.drafts) == (100, 100)
    _, middle, last = readings(events(Scripted(ONE, without('engine="1"'), TWO)))
    assert (middle.interval.drafts, last.interval.drafts, last.session.drafts) == (80, 20, 100)
    assert last.interval.acceptance_by_position == pytest.approx([18 / 20, 13 / 20, 9 / 20])


def test_other_models_are_told_and_another_kind_of_server_begins_anew() -> None:
    other = TWO.replace("meta-llama/Llama-3.1-8B-Instruct", "another")
    found = events(Scripted(ONE, other, page("llamacpp-1"), page("llamacpp-2")))
    assert [event.models for event in found if isinstance(event, Server)] == [
        ["meta-llama/Llama-3.1-8B-Instruct"],
        ["another"],
        [],
    ]
    renamed, _, last = readings(found)[1:]
    assert (renamed.interval.drafts, renamed.restarted) == (100, False)
    assert (last.session.drafts, last.session.seconds) == (10, 1.0)


def test_the_second_page_is_tried_where_the_first_is_none_and_kept() -> None:
    def answer(url: str) -> str:
        if "prometheus" in url:
            return page("tensorrt_llm-1")
        raise NotMetricsError("the page is JSON")

    server = Scripted(answer, answer, answer, page("tensorrt_llm-2"))
    found = events(server, "host:8000")
    assert server.asked[:2] == ["http://host:8000/metrics", "http://host:8000/prometheus/metrics"]
    assert server.asked[2:] == ["http://host:8000/prometheus/metrics"] * 2
    assert len(readings(found)) == 3


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("up 1\n", "do not belong to a supported server; supported: vLLM, SGLang, llama.cpp, TensorRT-LLM, TGI"),
        (ONE[:900], "is cut off"),
        (ONE.replace("} 4800.0", "} lots"), "not in a Prometheus format"),
    ],
)
def test_a_page_of_something_else_is_a_gap_with_one_line(text: str, reason: str) -> None:
    _, *gaps = events(Scripted(text, text))
    assert all(isinstance(gap, Gap) and reason in gap.reason and "\n" not in gap.reason for gap in gaps)
    assert len(gaps) == 2


def test_after_a_slow_answer_the_next_poll_is_on_time() -> None:
    server = Scripted(ONE, TWO, TWO, takes_s=2.5)
    assert [reading.t for reading in readings(events(server))] == [2.5, 5.5, 8.5]


@pytest.mark.parametrize(("waiting", "polls"), [([], 2), ([True, True, False], 4)])
def test_it_ends_after_the_polls_asked_for_once_nothing_is_waited_for(waiting: list[bool], polls: int) -> None:
    server, left = Scripted(ONE, TWO, TWO, TWO, TWO), iter(waiting)
    plan = Polling(address("host:8000/metrics"), 1.0, polls=2)
    found = watch(plan, server.page, server.pause, server.clock, waiting=lambda: next(left, False))
    assert len(readings(list(found))) == polls


def test_what_is_kept_stays_bounded_where_labels_change_at_every_poll() -> None:
    history = History()
    for number in range(50):
        lines = lines_of(ONE.replace("meta-llama", f"m{number}"))
        list(history.read("u", KINDS["vllm"], lines, float(number)))
    assert {name: len(series) for name, series in history._page.items()}["vllm:spec_decode_num_drafts"] == 2
    assert len(history._page) <= len(KINDS["vllm"].counters + KINDS["vllm"].gauges)


MINUTES = float(os.environ.get("DYNATUI_SOAK_MINUTES", "10"))
INTERVAL_S = 0.05
POLLS = 100
MOST_GROWTH = 2**20
"""In bytes; most of it is for the recent polls that are kept for curves."""


def misbehaving(stopped: threading.Event) -> Answer:
    """Answers of a faulty server: growing counters, resets, truncated pages, no pages, late answers, invalid HTTP."""
    pages = page("vllm-1")
    numbers = count(1)

    def answer(handler: Any) -> None:
        number = next(numbers)
        told = pages.replace("} 4800.0", f"}} {number % 150 * 7}.0").replace("} 14400.0", f"}} {number % 150 * 21}.0")
        odd: dict[int, Answer] = {
            3: text("", 503),
            5: text("<html></html>"),
            7: raw(b"SSH-2.0-OpenSSH\r\n"),
            9: text(told[: len(told) // 2]),
            11: text(told.replace("meta-llama", f"model-{number}"), Set_Cookie=f"id={number}"),
            13: text("", 302, Location="http://example.com/"),
            15: text("x" * 2**16),
            17: raw(b""),
        }
        drips = number % 500 == 499
        (dripping(b"", 0.01, stopped) if drips else odd.get(number % 20, text(told)))(handler)

    return answer


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.soak
def test_neither_memory_nor_open_files_grow() -> None:
    stopped = threading.Event()
    with serving(misbehaving(stopped)) as server, Client(patience_s=1.0) as client:
        state, until, growth = ServerState(), time.monotonic() + 60 * MINUTES, list[tuple[int, int]]()
        plan = Polling(address(f"{server.url}/metrics"), INTERVAL_S)
        tracemalloc.start()
        for event in watch(plan, client.page, pausing(until), time.monotonic):
            state = applied(state, event)
            polls = state.readings + state.missed
            if isinstance(event, Reading | Gap) and polls % POLLS == 0:
                server.requests.clear()
                gc.collect()
                growth.append((tracemalloc.get_traced_memory()[0], open_files()))
        stopped.set()
        tracemalloc.stop()
    print(f"{state.readings} readings, {state.missed} missed, {state.gaps} gaps, {state.restarts} restarts")  # noqa: T201 - the output of a soak test
    print(*(f"{memory / 2**20:.2f} MiB {files} files" for memory, files in growth), sep="\n")  # noqa: T201
    assert len(state.past) <= HISTORY_LENGTH
    assert len(growth) > 2 * HISTORY_LENGTH // POLLS
    settled = growth[HISTORY_LENGTH // POLLS :]
    assert max(memory for memory, _ in settled) - settled[0][0] < MOST_GROWTH
    assert max(files for _, files in settled) <= settled[0][1] + 3


def pausing(until: float) -> Callable[[float], bool]:
    """A pause that sleeps as requested and returns whether the time is over."""

    def pause(seconds: float) -> bool:
        time.sleep(seconds)
        return time.monotonic() >= until

    return pause
