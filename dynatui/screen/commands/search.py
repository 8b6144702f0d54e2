"""Finding words in the watched method's text; of a recording, in what is still to be shown and in its other runs."""

from contextlib import suppress
from typing import TYPE_CHECKING

from decoder.errors import RecordingError
from dynatui.clean import clean_line
from dynatui.fold.search import hits
from dynatui.screen.screens.search import SearchScreen

if TYPE_CHECKING:
    from dynatui.screen.app import DynaApp
    from dynatui.sources.source import Playback


def search(app: "DynaApp") -> None:
    """Asks for the words, and goes to the first place where they stand; nothing typed means the words of last time."""

    def run(typed: str | None) -> None:
        query = typed if typed is None or typed.strip() else app.scene.query
        if query:
            _find(app, query)

    app.push_screen(SearchScreen(app.scene.query), run)


def hit(app: "DynaApp", step: int) -> None:
    """The next place, or the one before; after the last, of a recording, in its next run."""
    found, cursor = app.scene.hits, app.scene.cursor or 0
    ahead = [each for each in found if (each.start > cursor if step > 0 else each.stop <= cursor)]
    if ahead:
        app.look(cursor=ahead[0 if step > 0 else -1].start)
    elif (playback := app.source.playback) and (away := _run_with(app.scene.query, app, playback, step)):
        _show(app, app.scene.query, away=away, place=0 if step > 0 else -1)
    elif found:
        app.look(cursor=found[0 if step > 0 else -1].start)
        app.say("from the beginning again" if step > 0 else "from the end again")


def _find(app: "DynaApp", query: str) -> None:
    """Shows all of the text, with the cursor on the first place at or after where it was."""
    playback, watched = app.source.playback, app.gaze.state.watched
    lane = app.gaze.shown.state.lanes.get(watched)
    shown = [token.text for token in lane.tokens] if lane else []
    here = [playback.text(watched, playback.number)] if playback else shown
    if hits(query, here):
        _show(app, query)
    elif playback and (away := _run_with(query, app, playback, 1)):
        _show(app, query, away=away)
    else:
        so_far = "" if playback or watched in app.gaze.newest.ends else " so far"
        app.say(f'"{clean_line(query)}" is not in the text of {watched or "any method"}{so_far}')


def _run_with(query: str, app: "DynaApp", playback: "Playback", step: int) -> int | None:
    """How many runs away the nearest other one is in which the words stand."""
    watched = app.gaze.state.watched
    for away in range(1, playback.count):
        number = (playback.number + step * away) % playback.count
        with suppress(RecordingError):  # it is told as a failure when it is shown
            if hits(query, [playback.text(watched, number)]):
                return step * away
    return None


def _show(app: "DynaApp", query: str, *, away: int = 0, place: int = 0) -> None:
    """A run so many away with all of its text, and the cursor on one of the places."""
    if away:
        app.source.go(away)
        app.take_in()
    _show_all(app)
    _put(app, query, place)


def _show_all(app: "DynaApp") -> None:
    """The whole text of the run, as far as it is known; the show stands still."""
    if playback := app.source.playback:
        app.gaze.follow()
        watched = app.gaze.newest.watched
        app.source.set_paused(paused=True)
        playback.seek_round(watched, playback.length(watched)[0])
        app.take_in()
    app.gaze.look_at(app.gaze.shown.rounds(app.gaze.state.watched))


def _put(app: "DynaApp", query: str, place: int) -> None:
    """The cursor on one of the places, the first from where it was if there is any."""
    found = hits(query, [token.text for token in app.gaze.state.tokens])
    cursor = app.scene.cursor if app.scene.mode == "inspect" else None
    ahead = [each for each in found if cursor is not None and each.stop > cursor] or found
    app.look(mode="search", query=query, cursor=ahead[place].start, panel="text")
