"""Of the processes that share a token, only one prints its error; a process without a token always prints."""

import os
import subprocess
import sys

import pytest

from decoder.tensor_parallel.ranks import LOST
from dynatui import main as cli
from dynatui.terminal import last_word
from dynatui.terminal.last_word import VARIABLE, LastWord

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs pipes that are inherited")

ASKING = "from dynatui.terminal import last_word; print(last_word.claimed(), last_word.claimed())"


def test_the_first_that_asks_has_it_and_keeps_it() -> None:
    with last_word.shared() as first:
        second = LastWord(first.pipe)
        assert [first.claimed(), second.claimed(), first.claimed(), second.claimed()] == [True, False, True, False]


def test_a_process_that_was_told_of_it_has_it_once_and_then_the_others_do_not() -> None:
    with last_word.shared() as word:
        told = {**os.environ, VARIABLE: str(word.pipe)}
        asked = subprocess.run(
            [sys.executable, "-c", ASKING], env=told, pass_fds=(word.pipe,), capture_output=True, check=True, text=True
        )
        assert asked.stdout.split() == ["True", "False"]
        assert not word.claimed()


def test_a_process_alone_always_has_it() -> None:
    assert last_word.claimed({})
    assert last_word.claimed({})


@pytest.mark.parametrize(("code", "says"), [(2, False), (LOST, True)])
def test_a_refusal_is_told_by_one_alone_but_a_lost_rank_does_not_know_why(
    code: int,
    says: bool,  # noqa: FBT001 - a parameter of the test's cases
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with last_word.shared() as word:
        assert LastWord(word.pipe).claimed()
        monkeypatch.setenv(VARIABLE, str(word.pipe))
        assert cli._refused("no such device", code) == code
        assert bool(capsys.readouterr().err) is says
