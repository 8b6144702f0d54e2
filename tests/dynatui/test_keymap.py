"""Tests of the table of keys and of its changes by settings."""

from collections.abc import Iterable
from typing import get_args

import pytest

from decoder.errors import ConfigError
from dynatui.keymap import KEYMAP, LEFT_OUT, PANELS, Keymap, Mode
from dynatui.screen import commands
from dynatui.screen.app import DynaApp
from dynatui.screen.compare import CompareApp
from dynatui.screen.server_app import ServerApp

MODES: tuple[Mode, ...] = get_args(Mode)


def assert_distinct(found: Iterable[object]) -> None:
    every = list(found)
    assert len(every) == len(set(every))


@pytest.mark.parametrize("mode", MODES)
def test_in_each_mode_keys_places_in_the_footer_and_names_are_given_once(mode: Mode) -> None:
    keys = [key for key in KEYMAP.every if mode in key.modes]
    assert_distinct(cap for key in keys for cap in key.caps)
    assert_distinct(key.rank for key in keys if 0 < key.rank < LEFT_OUT)
    names = [name for key in keys if not key.fixed for name in key.settings]
    assert_distinct(names)
    assert len(names) == sum(len(key.different) for key in keys if not key.fixed)


def test_every_key_has_a_command_or_an_action_of_its_app_and_explains_itself() -> None:
    assert all(len(key.caps) == len(key.actions) and key.label and key.help for key in KEYMAP.every)
    assert all(group.title and group.keys for group in (*KEYMAP.groups, KEYMAP.side_by_side, KEYMAP.attached))
    actions = {action for key in KEYMAP.keys for action in key.actions}
    assert all(commands.find(action) or callable(getattr(DynaApp, f"action_{action}")) for action in actions)
    for group, app in ((KEYMAP.side_by_side, CompareApp), (KEYMAP.attached, ServerApp)):
        assert all(hasattr(app, f"action_{action.partition('(')[0]}") for key in group.keys for action in key.actions)


def test_the_palette_has_a_title_for_every_action_and_the_table_names_all_panels() -> None:
    keys = [key for key in KEYMAP.keys if "watch" in key.modes]
    assert all(len(key.titles) == len(key.different) for key in keys)
    assert_distinct(title for key in keys for title in key.titles)
    actions = [action for key in KEYMAP.keys for action in key.actions]
    assert [f"panel('{name}')" for name in PANELS] == [action for action in actions if action.startswith("panel")]


def means(keys: Keymap, cap: str, mode: Mode = "watch") -> str | None:
    return keys.action_for(cap, mode)


@pytest.mark.parametrize(
    ("cap", "mode", "action"),
    [
        *(("left", "watch", "scrub(-1)"), ("left", "inspect", "cursor(-1)"), ("left", "knobs", "nudge(-1)")),
        *(("left", "compare", "step(-1)"), ("n", "watch", "prompt(1)"), ("n", "search", "hit(1)")),
        *(("0", "knobs", "type_digit('0')"), ("0", "watch", "defaults"), ("ü", "watch", None)),
    ],
)
def test_a_key_means_what_its_mode_says(cap: str, mode: Mode, action: str | None) -> None:
    assert KEYMAP.action_for(cap, mode) == action


def test_another_key_does_it_and_the_usual_one_no_longer() -> None:
    keys = KEYMAP.rebound({"pause": ["f5"], "tau_h_down": ["&", "~"]})
    assert (means(keys, "f5"), means(keys, "P"), keys.cap("pause")) == ("pause", None, "f5")
    assert means(keys, "&") == means(keys, "~") == "turn('[')"
    assert (means(keys, "["), means(keys, "]")) == (None, "turn(']')")
    assert means(keys, "f5", "compare") == "pause"


def test_two_keys_can_be_exchanged_but_one_always_quits() -> None:
    keys = KEYMAP.rebound({"pause": ["h"], "history": ["P"], "quit": ["Q"]})
    assert (means(keys, "h"), means(keys, "P"), means(keys, "ctrl+c", "compare")) == ("pause", "history", "leave")
    assert keys.all_for("leave") == {"Q", "ctrl+c"}


def test_an_action_without_a_key_is_found_in_the_palette() -> None:
    keys = KEYMAP.rebound({"pause": []})
    assert (means(keys, "P"), keys.cap("pause"), keys.settings()["pause"]) == (None, "ctrl+p", ())
    half = KEYMAP.rebound({"watch_previous": []})
    assert (means(half, "w"), means(half, "W")) == ("watch(1)", None)
    assert [key.titles for key in half.keys if "watch(1)" in key.actions] == [("watch: next", "watch: previous")]


@pytest.mark.parametrize(
    ("name", "cap", "told"),
    [
        ("pauze", "f5", "no action is called 'pauze'; did you mean pause?"),
        ("pause", "f99", "pause is 'f99', which is no key; give a character, or a key such as"),
        ("pause", "", "pause is '', which is no key; give a character"),
        ("pause", "ctrl+", "pause is 'ctrl+', which is no key; give a character"),
        ("pause", " ", "pause is ' ', which is no key; give a character"),
        ("pause", "ctrl+c", "always quits; give another key"),
        ("pause", "history", "pause is 'history', which is no key; give a character"),
        ("pause", "h", "pause is 'h', but history has that key already; give pause or history another key"),
        ("history", "1", "history is '1', but value has that key already"),
        ("token_before", "E", "token_before is 'E', but edit has that key already"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_remedy(name: str, cap: str, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        KEYMAP.rebound({name: [cap]})
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("cap", ["f5", "ctrl+s", "alt+x", "ctrl+shift+left", "pageup", "ü", "+", "ctrl++"])
def test_any_key_that_a_terminal_sends_can_be_bound(cap: str) -> None:
    assert means(KEYMAP.rebound({"pause": [cap]}), cap) == "pause"
