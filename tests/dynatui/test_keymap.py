"""The one table of keys."""

from typing import get_args

import pytest

from dynatui.keymap import GROUPS, KEYMAP, LEFT_OUT, PANELS, Mode, action_for
from dynatui.screen import commands
from dynatui.screen.app import DynaApp

MODES: tuple[Mode, ...] = get_args(Mode)


@pytest.mark.parametrize("mode", MODES)
def test_in_each_mode_every_key_means_one_thing(mode: Mode) -> None:
    caps = [cap for key in KEYMAP if mode in key.modes for cap in key.caps]
    assert len(caps) == len(set(caps))


def test_every_key_has_a_command_or_an_action_of_the_app() -> None:
    for key in KEYMAP:
        assert len(key.caps) == len(key.actions)
        for action in key.actions:
            assert commands.find(action) or callable(getattr(DynaApp, f"action_{action}"))


def test_every_key_explains_itself() -> None:
    assert all(key.label and key.help for key in KEYMAP)
    assert all(group.title and group.keys for group in GROUPS)


@pytest.mark.parametrize("mode", MODES)
def test_places_in_the_footer_are_given_once(mode: Mode) -> None:
    ranks = [key.rank for key in KEYMAP if mode in key.modes and 0 < key.rank < LEFT_OUT]
    assert len(ranks) == len(set(ranks))


def test_the_palette_has_a_title_for_every_action() -> None:
    for key in KEYMAP:
        if "watch" in key.modes:
            assert len(key.titles) == len(dict.fromkeys(key.actions))
    titles = [title for key in KEYMAP if "watch" in key.modes for title in key.titles]
    assert len(titles) == len(set(titles))


def test_a_key_means_what_its_mode_says() -> None:
    assert action_for("left", "watch") == "scrub(-1)"
    assert action_for("left", "inspect") == "cursor(-1)"
    assert action_for("left", "knobs") == "nudge(-1)"
    assert action_for("0", "knobs") == "type_digit('0')"
    assert action_for("0", "watch") == "defaults"
    assert action_for("ü", "watch") is None


def test_the_table_names_all_panels() -> None:
    actions = [action for key in KEYMAP for action in key.actions]
    assert [f"panel('{name}')" for name in PANELS] == [action for action in actions if action.startswith("panel")]
