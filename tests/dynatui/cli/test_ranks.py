"""Under torchrun, the first process decodes and the others follow it."""

import os
import signal

import pytest

from decoder.tensor_parallel import target
from decoder.tensor_parallel.ranks import Ranks
from dynatui import main as cli
from tests.decoder.tensor_parallel.started_ranks import FIRST_OF_TWO, start_as
from tests.dynatui.cli.fake_screen import FakeScreen


def test_the_first_of_those_that_were_started_decodes(screen: FakeScreen, monkeypatch: pytest.MonkeyPatch) -> None:
    start_as(FIRST_OF_TWO, monkeypatch)
    assert cli.main([]) == 0
    assert len(screen.sessions) == 1


class EndedError(BaseException):
    """Stands for the end of the process."""


def test_the_others_follow_with_the_same_target(screen: FakeScreen, monkeypatch: pytest.MonkeyPatch) -> None:
    following: list[tuple[object, ...]] = []

    def end(code: int) -> None:
        raise EndedError(code)

    second = Ranks(1, 3, local=1, local_count=3)
    start_as(second, monkeypatch)
    monkeypatch.setattr(target, "serve", lambda *given: following.append(given))
    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(EndedError):
        cli.main(["--target", "t", "--draft", "d"])
    assert (following, screen.sessions) == ([(second, "t", "auto")], [])
