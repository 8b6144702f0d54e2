"""Commands that change the view: cursors in the text and in the list of prompts, search, panels, colours and symbols.

In a recording, the search includes the text not yet played and the other runs.
"""

import sys
from contextlib import suppress
from typing import Any

from decoder.errors import RecordingError
from dynatui.clean import clean_line
from dynatui.keymap import CURSOR, PANELS, PanelName
from dynatui.render.prompts import chosen, listed
from dynatui.render.rounds import round_number
from dynatui.render.scene import HEATS
from dynatui.render.words import WHY_ALONE, is_alone
from dynatui.screen.pages.help import HelpScreen
from dynatui.screen.pages.page import SearchScreen
from dynatui.screen.pages.server_page import ServerPage
from dynatui.screen.protocol import Screen
from dynatui.sources.playback import TraceSource
from dynatui.state.tokens import entry_of, hits

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


def token(screen: Screen, place: int) -> None:
    look_at_token(screen, place, mode="search" if screen.scene.mode == "search" else "inspect", panel="text")


def wheel(screen: Screen, lines: int) -> None:
    """Moves the text cursor by three lines per step of the wheel; if there is no cursor, a step up places one."""
    if screen.scene.mode in CURSOR:
        cursor_line(screen, 3 * lines)
    elif lines < 0:
        inspect(screen)


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


def beside(screen: Screen) -> None:
    screen.change_view(beside=not screen.scene.beside)


def panel(screen: Screen, name: PanelName) -> None:
    screen.change_view(panel=name)


def lane(screen: Screen, method: str) -> None:
    panel(screen, "race")
    screen.watch_method(method)


def next_panel(screen: Screen, step: int) -> None:
    screen.change_view(panel=PANELS[(PANELS.index(screen.scene.panel) + step) % len(PANELS)])


def maximise(screen: Screen) -> None:
    screen.change_view(maximised=not screen.scene.maximised)


def back(screen: Screen) -> None:
    """Leaves the first of these that is active: knob drawer, cursor, chosen prompt, maximised panel, earlier round."""
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


def server(screen: Screen) -> None:
    screen.push_screen(ServerPage(screen))


def search(screen: Screen) -> None:
    if screen.scene.panel == "prompts":
        filter_prompts(screen)
        return

    def run(typed: str | None) -> None:
        query = typed if typed is None or typed.strip() else screen.scene.query
        if query:
            _find(screen, query)

    screen.push_screen(SearchScreen(screen.scene.query, "words in the text; enter finds"), run)


def hit(screen: Screen, step: int) -> None:
    places, cursor = screen.scene.hits, screen.scene.cursor or 0
    ahead = [place for place in places if (place.start > cursor if step > 0 else place.stop <= cursor)]
    if ahead:
        look_at_token(screen, ahead[0 if step > 0 else -1].start)
    elif (playback := screen.source.playback) and (away := _run_with(screen.scene.query, screen, playback, step)):
        _show(screen, screen.scene.query, away=away, place=0 if step > 0 else -1)
    elif places:
        look_at_token(screen, places[0 if step > 0 else -1].start)
        screen.show_note("from the beginning again" if step > 0 else "from the end again")


def _find(screen: Screen, query: str) -> None:
    playback, watched = screen.source.playback, screen.viewpoint.state.watched
    texts = [token.text for token in screen.viewpoint.whole.lane.tokens]
    searched = [playback.text(watched, playback.number)] if playback else texts
    if hits(query, searched):
        _show(screen, query)
    elif playback and (away := _run_with(query, screen, playback, 1)):
        _show(screen, query, away=away)
    else:
        so_far = "" if playback or watched in screen.viewpoint.newest.ends else " so far"
        screen.show_note(f'"{clean_line(query)}" is not in the text of {watched or "any method"}{so_far}')


def _run_with(query: str, screen: Screen, playback: TraceSource, step: int) -> int | None:
    """Number of runs to the nearest other run with a hit, in the direction of `step`; None if no other run has one."""
    watched = screen.viewpoint.state.watched
    for away in range(1, playback.count):
        number = (playback.number + step * away) % playback.count
        with suppress(RecordingError):  # an unreadable run is reported when it is shown
            if hits(query, [playback.text(watched, number)]):
                return step * away
    return None


def _show(screen: Screen, query: str, *, away: int = 0, place: int = 0) -> None:
    """Goes to the run that is `away` later, then moves the cursor to the next hit (`place` 0) or the last one (-1)."""
    if away:
        screen.source.go(away)
        screen.read_events()
        screen.viewpoint.follow()
    if screen.source.playback:
        screen.viewpoint.look_at(sys.maxsize)  # makes the viewpoint read the whole text
    places = hits(query, [token.text for token in screen.viewpoint.whole.lane.tokens])
    cursor = screen.scene.cursor if screen.scene.mode == "inspect" else None
    ahead = [hit_range for hit_range in places if cursor is not None and hit_range.stop > cursor] or places
    look_at_token(screen, ahead[place].start, mode="search", query=query, panel="text")
