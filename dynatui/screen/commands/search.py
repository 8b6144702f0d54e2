"""Commands that search the watched method's text; in a recording, also the text not yet played and the other runs."""

import sys
from contextlib import suppress

from decoder.errors import RecordingError
from dynatui.clean import clean_line
from dynatui.screen.commands.view import filter_prompts, look_at_token
from dynatui.screen.pages.page import SearchScreen
from dynatui.screen.protocol import Screen
from dynatui.sources.source import Playback
from dynatui.state.tokens import hits


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


def _run_with(query: str, screen: Screen, playback: Playback, step: int) -> int | None:
    """Distance in runs to the nearest other run with a hit, in the direction of `step`; None if no run has a hit."""
    watched = screen.viewpoint.state.watched
    for away in range(1, playback.count):
        number = (playback.number + step * away) % playback.count
        with suppress(RecordingError):  # an unreadable run is reported when it is shown
            if hits(query, [playback.text(watched, number)]):
                return step * away
    return None


def _show(screen: Screen, query: str, *, away: int = 0, place: int = 0) -> None:
    """Moves the cursor to the next hit (`place` 0) or to the last hit (-1); first goes to the run `away` runs later."""
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
