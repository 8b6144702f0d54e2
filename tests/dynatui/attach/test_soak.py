"""Thousands of readings of a faulty server: memory and open files do not grow, and no reading is lost."""

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

from dynatui.attach.address import address
from dynatui.attach.client import Client
from dynatui.attach.events import Gap, Reading
from dynatui.attach.session import Polling, watch
from dynatui.state.server_state import HISTORY_LENGTH, ServerState, applied
from tests.dynatui.attach.page_server import Answer, dripping, page, raw, serving, text

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
