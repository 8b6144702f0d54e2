"""Tests of which runs begin with a tour of their first round."""

import pytest

from dynatui import main as cli
from tests.dynatui.cli.fake_screen import FakeScreen


@pytest.mark.parametrize(
    ("arguments", "toured"),
    [
        ((), True),
        (("--theme", "nord"), True),
        (("--no-tour",), False),
        (("--prompt", "Once"), False),
        (("--target", "t", "--draft", "d"), False),
        (("--record", "run.jsonl"), False),
    ],
)
def test_only_a_run_of_our_own_prompts_and_models_is_toured(
    screen: FakeScreen, arguments: tuple[str, ...], *, toured: bool
) -> None:
    assert cli.main(arguments) == 0
    assert screen.sessions[-1].view.tour is toured


def test_a_variable_turns_it_off(screen: FakeScreen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYNATUI_TOUR", "false")
    assert cli.main(()) == 0
    assert not screen.sessions[-1].view.tour
