"""Finding words in the watched method's text; of a recording, in what is still to be shown and in its other runs."""

from contextlib import suppress

from decoder.errors import RecordingError
from dynatui.clean import clean_line
from dynatui.screen.pages.input import SearchScreen
from dynatui.screen.protocol import Screen
from dynatui.sources.source import Playback
from dynatui.state.tokens import hits


def search(screen: Screen) -> None:
    """Asks for the words, and goes to the first place where they stand; nothing typed means the words of last time."""

    def run(typed: str | None) -> None:
        query = typed if typed is None or typed.strip() else screen.scene.query
        if query:
            _find(screen, query)

    screen.push_screen(SearchScreen(screen.scene.query), run)


def hit(screen: Screen, step: int) -> None:
    """The next place, or the one before; after the last, of a recording, in its next run."""
    found, cursor = screen.scene.hits, screen.scene.cursor or 0
    ahead = [each for each in found if (each.start > cursor if step > 0 else each.stop <= cursor)]
    if ahead:
        screen.change_view(cursor=ahead[0 if step > 0 else -1].start)
    elif (playback := screen.source.playback) and (away := _run_with(screen.scene.query, screen, playback, step)):
        _show(screen, screen.scene.query, away=away, place=0 if step > 0 else -1)
    elif found:
        screen.change_view(cursor=found[0 if step > 0 else -1].start)
        screen.show_note("from the beginning again" if step > 0 else "from the end again")


def _find(screen: Screen, query: str) -> None:
    """Shows all of the text, with the cursor on the first place at or after where it was."""
    playback, watched = screen.source.playback, screen.viewpoint.state.watched
    lane = screen.viewpoint.shown.state.lanes.get(watched)
    shown = [token.text for token in lane.tokens] if lane else []
    here = [playback.text(watched, playback.number)] if playback else shown
    if hits(query, here):
        _show(screen, query)
    elif playback and (away := _run_with(query, screen, playback, 1)):
        _show(screen, query, away=away)
    else:
        so_far = "" if playback or watched in screen.viewpoint.newest.ends else " so far"
        screen.show_note(f'"{clean_line(query)}" is not in the text of {watched or "any method"}{so_far}')


def _run_with(query: str, screen: Screen, playback: Playback, step: int) -> int | None:
    """How many runs away the nearest other one is in which the words stand."""
    watched = screen.viewpoint.state.watched
    for away in range(1, playback.count):
        number = (playback.number + step * away) % playback.count
        with suppress(RecordingError):  # it is told as a failure when it is shown
            if hits(query, [playback.text(watched, number)]):
                return step * away
    return None


def _show(screen: Screen, query: str, *, away: int = 0, place: int = 0) -> None:
    """A run so many away, standing still with all of its text, and the cursor on a place, from where it was on."""
    if away:
        screen.source.go(away)
        screen.read_events()
    if playback := screen.source.playback:
        screen.viewpoint.follow()
        watched = screen.viewpoint.newest.watched
        screen.source.set_paused(paused=True)
        playback.seek_round(watched, playback.length(watched)[0])
        screen.read_events()
    screen.viewpoint.look_at(screen.viewpoint.shown.rounds(screen.viewpoint.state.watched))
    found = hits(query, [token.text for token in screen.viewpoint.state.lane.tokens])
    cursor = screen.scene.cursor if screen.scene.mode == "inspect" else None
    ahead = [each for each in found if cursor is not None and each.stop > cursor] or found
    screen.change_view(mode="search", query=query, cursor=ahead[place].start, panel="text")
