"""Background work reports its end, and any exception, in the app's thread."""

import threading
from collections.abc import Callable

import pytest

from dynatui.screen.protocol import Aside

Done = Callable[[Exception | None], None]


def told(work: Callable[[], None]) -> list[Exception | None]:
    found: list[Exception | None] = []
    aside = Aside(lambda call, *given: call(*given))
    aside.start(work, found.append)
    aside.wait(10)
    assert not aside.busy
    return found


def test_work_that_is_over_is_told() -> None:
    assert told(lambda: None) == [None]


def test_what_it_raised_is_told() -> None:
    fault = ValueError("no")

    def work() -> None:
        raise fault

    assert told(work) == [fault]


def test_it_is_busy_until_the_work_is_over() -> None:
    go_on, aside = threading.Event(), Aside(lambda *_: None)
    assert not aside.busy
    aside.start(lambda: _wait(go_on), lambda _: None)
    aside.wait(0.0)
    assert aside.busy
    go_on.set()
    aside.wait(10)
    assert not aside.busy


def test_an_app_that_is_over_is_told_nothing() -> None:
    def closed(*_: object) -> None:
        raise RuntimeError("Event loop is closed")

    with pytest.MonkeyPatch.context() as patch:
        faults = list[object]()
        patch.setattr(threading, "excepthook", faults.append)
        aside = Aside(closed)
        aside.start(lambda: None, lambda _: None)
        aside.wait(10)
    assert (aside.busy, faults) == (False, [])


def _wait(until: threading.Event) -> None:
    until.wait(10)
