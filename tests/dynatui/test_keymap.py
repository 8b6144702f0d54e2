"""The one table of keys."""

from dynatui.app import DynaApp
from dynatui.keymap import KEYMAP, KNOB_STEPS, TABS


def test_every_key_is_given_once() -> None:
    caps = [cap for key in KEYMAP for cap in key.caps]
    assert len(caps) == len(set(caps))


def test_every_key_has_an_action_that_the_app_knows() -> None:
    for key in KEYMAP:
        assert len(key.caps) == len(key.actions)
        for action in key.actions:
            assert callable(getattr(DynaApp, f"action_{action.split('(')[0]}"))


def test_every_key_explains_itself_and_has_its_own_place_in_the_footer() -> None:
    assert all(key.label and key.help for key in KEYMAP)
    assert len({key.rank for key in KEYMAP}) == len(KEYMAP)


def test_the_table_names_all_tabs_and_knobs() -> None:
    actions = [action for key in KEYMAP for action in key.actions]
    assert [f"tab('{tab}')" for tab in TABS] == [action for action in actions if action.startswith("tab")]
    assert {action.split("'")[1] for action in actions if action.startswith("turn")} == set(KNOB_STEPS)
