"""Commands that change the view: cursors in the text and in the list of prompts, panels, colours and symbols."""

import sys
from typing import Any

from dynatui.keymap import CURSOR, PANELS, PanelName
from dynatui.render.prompts import chosen, listed
from dynatui.render.rounds import round_number
from dynatui.render.scene import HEATS
from dynatui.render.words import WHY_ALONE, is_alone
from dynatui.screen.pages.help import HelpScreen
from dynatui.screen.pages.page import SearchScreen
from dynatui.screen.protocol import Screen
from dynatui.state.tokens import entry_of

_HEAT_NAMES = {
    "origin": "origin of the token",
    "probability": "the draft's probability",
    "round": "tokens of the same round",
    "time": "decode time of the token",
}


def inspect(screen: Screen) -> None:
    if screen.scene.mode in CURSOR:
        back(screen)
        return
    tokens = screen.viewpoint.state.lane.tokens
    if not tokens:
        screen.show_note("there is no text to inspect yet")
        return
    panel = screen.scene.panel if screen.scene.panel in ("text", "tree") else "text"
    look_at_token(screen, len(tokens) - 1, mode="inspect", panel=panel)


def look_at_token(screen: Screen, place: int, **changes: Any) -> None:
    """Places the cursor on a token, or on the nearest existing token; every panel shows the token's round."""
    tokens = screen.viewpoint.whole.lane.tokens
    place = min(max(0, place), len(tokens) - 1)
    if screen.source.playback:
        screen.source.set_paused(paused=True)
    screen.viewpoint.look_at(round_number(screen.viewpoint.whole, tokens[place]))
    screen.change_view(cursor=place, **changes)


def cursor(screen: Screen, step: int) -> None:
    look_at_token(screen, (screen.scene.cursor or 0) + step)


def cursor_to(screen: Screen, place: int) -> None:
    """Moves the cursor to a token by its index; -1 is the last token."""
    look_at_token(screen, place if place >= 0 else sys.maxsize)


def cursor_line(screen: Screen, lines: int) -> None:
    look_at_token(screen, screen.text_panel.moved(screen.scene.cursor or 0, lines))


def cursor_round(screen: Screen, rounds: int) -> None:
    tokens, inspected = screen.viewpoint.whole.lane.tokens, screen.scene.inspected
    if inspected is None:
        return
    numbers = sorted({token.round for token in tokens})
    place = min(max(0, numbers.index(inspected.round) + rounds), len(numbers) - 1)
    look_at_token(screen, next(index for index, token in enumerate(tokens) if token.round == numbers[place]))


def difference(screen: Screen) -> None:
    state = screen.viewpoint.whole
    figures = state.figures().get(state.watched)
    place = figures.first_difference if figures else None
    entry = None if place is None else entry_of(place, state.lane.tokens, state.lane.past)
    if entry is None:
        none = "method ar does not race, so there is no text to compare with"
        none = f"{state.watched}: {WHY_ALONE}" if is_alone(state, state.watched) else none
        same = figures is not None and figures.identical_to_ar
        screen.show_note("the text so far equals that of ar" if same else none)
        return
    look_at_token(screen, entry, mode="inspect", panel="text")


def move_prompt(screen: Screen, lines: int) -> None:
    numbers = listed(screen.scene)
    if (number := chosen(screen.scene, numbers)) is not None:
        place = numbers.index(number) + lines
        screen.change_view(chosen_prompt=numbers[min(max(0, place), len(numbers) - 1)])


def filter_prompts(screen: Screen) -> None:
    def run(typed: str | None) -> None:
        if typed is not None:
            screen.change_view(prompt_filter=typed.strip())

    how = "words of a prompt; enter lists the prompts with these words"
    screen.push_screen(SearchScreen(screen.scene.prompt_filter, how), run)


def heat(screen: Screen) -> None:
    name = HEATS[(HEATS.index(screen.scene.heat) + 1) % len(HEATS)]
    screen.change_view(heat=name)
    screen.show_note(f"colours of the text: {_HEAT_NAMES[name]}")


def mask(screen: Screen) -> None:
    screen.change_view(mask=not screen.scene.mask)


def panel(screen: Screen, name: PanelName) -> None:
    screen.change_view(panel=name)


def next_panel(screen: Screen, step: int) -> None:
    screen.change_view(panel=PANELS[(PANELS.index(screen.scene.panel) + step) % len(PANELS)])


def maximise(screen: Screen) -> None:
    screen.change_view(maximised=not screen.scene.maximised)


def back(screen: Screen) -> None:
    """Leaves the first of these that is active: drawer, cursor, chosen prompt, maximised panel, earlier round."""
    scene = screen.scene
    if scene.mode == "knobs":
        screen.change_view(mode="watch", typed="")
    elif scene.mode in CURSOR:
        if not screen.source.playback:
            screen.viewpoint.follow()
        screen.change_view(mode="watch", cursor=None)
    elif scene.panel == "prompts" and (scene.prompt_filter or scene.chosen_prompt is not None):
        screen.change_view(prompt_filter="", chosen_prompt=None)
    elif scene.maximised:
        screen.change_view(maximised=False)
    else:
        screen.viewpoint.follow()


def symbols(screen: Screen) -> None:
    name = screen.scene.next_symbols
    screen.change_view(symbols=name)
    screen.show_note(f"symbols: {name}")


def help(screen: Screen) -> None:  # noqa: A001 - the name of the command
    screen.push_screen(HelpScreen(screen.scene.keys, screen.viewpoint.state.run))
