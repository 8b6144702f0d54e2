"""Tests of the table of keys and of its changes by settings."""

from typing import get_args

import pytest

from decoder.errors import ConfigError
from dynatui.keymap import KEYMAP, LEFT_OUT, PANELS, Keymap, Mode
from dynatui.screen import commands
from dynatui.screen.app import DynaApp
from dynatui.screen.compare import CompareApp
from dynatui.screen.server_app import ServerApp

MODES: tuple[Mode, ...] = get_args(Mode)


@pytest.mark.parametrize("mode", MODES)
def test_in_each_mode_every_key_means_one_thing(mode: Mode) -> None:
    caps = [cap for key in KEYMAP.every if mode in key.modes for cap in key.caps]
    assert len(caps) == len(set(caps))


def test_every_key_has_a_command_or_an_action_of_its_app() -> None:
    assert all(len(key.caps) == len(key.actions) for key in KEYMAP.every)
    for key in KEYMAP.keys:
        assert all(commands.find(action) or callable(getattr(DynaApp, f"action_{action}")) for action in key.actions)
    for key in KEYMAP.side_by_side.keys:
        assert all(hasattr(CompareApp, f"action_{action.partition('(')[0]}") for action in key.actions)
    for key in KEYMAP.attached.keys:
        assert all(hasattr(ServerApp, f"action_{action}") for action in key.actions)


def test_every_key_explains_itself() -> None:
    assert all(key.label and key.help for key in KEYMAP.every)
    assert all(group.title and group.keys for group in (*KEYMAP.groups, KEYMAP.side_by_side, KEYMAP.attached))


@pytest.mark.parametrize("mode", MODES)
def test_places_in_the_footer_are_given_once(mode: Mode) -> None:
    ranks = [key.rank for key in KEYMAP.every if mode in key.modes and 0 < key.rank < LEFT_OUT]
    assert len(ranks) == len(set(ranks))


def test_the_palette_has_a_title_for_every_action() -> None:
    for key in KEYMAP.keys:
        if "watch" in key.modes:
            assert len(key.titles) == len(key.different)
    titles = [title for key in KEYMAP.keys if "watch" in key.modes for title in key.titles]
    assert len(titles) == len(set(titles))


def test_a_key_means_what_its_mode_says() -> None:
    assert KEYMAP.action_for("left", "watch") == "scrub(-1)"
    assert KEYMAP.action_for("left", "inspect") == "cursor(-1)"
    assert KEYMAP.action_for("left", "knobs") == "nudge(-1)"
    assert KEYMAP.action_for("left", "compare") == "step(-1)"
    assert KEYMAP.action_for("n", "watch") == "prompt(1)"
    assert KEYMAP.action_for("n", "search") == "hit(1)"
    assert KEYMAP.action_for("0", "knobs") == "type_digit('0')"
    assert KEYMAP.action_for("0", "watch") == "defaults"
    assert KEYMAP.action_for("ü", "watch") is None


def test_the_table_names_all_panels() -> None:
    actions = [action for key in KEYMAP.keys for action in key.actions]
    assert [f"panel('{name}')" for name in PANELS] == [action for action in actions if action.startswith("panel")]


def test_every_action_but_digits_has_a_name_and_in_one_mode_no_two_have_the_same() -> None:
    for mode in MODES:
        keys = [key for key in KEYMAP.every if mode in key.modes and not key.fixed]
        names = [name for key in keys for name in key.settings]
        assert len(names) == len(set(names)) == sum(len(key.different) for key in keys)


def means(keys: Keymap, cap: str, mode: Mode = "watch") -> str | None:
    return keys.action_for(cap, mode)


def test_another_key_does_it_and_the_usual_one_no_longer() -> None:
    keys = KEYMAP.rebound({"pause": ["f5"], "tau_h_down": ["&", "~"]})
    assert (means(keys, "f5"), means(keys, "P"), keys.cap("pause")) == ("pause", None, "f5")
    assert means(keys, "&") == means(keys, "~") == "turn('[')"
    assert (means(keys, "["), means(keys, "]")) == (None, "turn(']')")
    assert means(keys, "f5", "compare") == "pause"


def test_two_keys_can_be_exchanged() -> None:
    keys = KEYMAP.rebound({"pause": ["h"], "history": ["P"]})
    assert (means(keys, "h"), means(keys, "P")) == ("pause", "history")


def test_an_action_without_a_key_is_found_in_the_palette() -> None:
    keys = KEYMAP.rebound({"pause": []})
    assert (means(keys, "P"), keys.cap("pause")) == (None, "ctrl+p")
    assert keys.settings()["pause"] == ()
    half = KEYMAP.rebound({"watch_previous": []})
    assert (means(half, "w"), means(half, "W")) == ("watch(1)", None)
    assert [key.titles for key in half.keys if "watch(1)" in key.actions] == [("watch: next", "watch: previous")]


def test_one_key_always_quits() -> None:
    keys = KEYMAP.rebound({"quit": ["Q"]})
    assert keys.all_for("leave") == {"Q", "ctrl+c"}
    assert means(keys, "ctrl+c", "compare") == "leave"


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
