"""Looking closer: a cursor in the text, other colours, other panels."""

from typing import TYPE_CHECKING

from dynatui.fold.tokens import entry_of
from dynatui.keymap import CURSOR, PANELS, PanelName
from dynatui.render.scene import HEATS
from dynatui.screen.screens.help import HelpScreen

if TYPE_CHECKING:
    from dynatui.screen.app import DynaApp

_HEAT_NAMES = {
    "origin": "origin of the token",
    "probability": "how probable the draft found it",
    "round": "which tokens came together",
    "time": "time it took",
}


def inspect(app: "DynaApp") -> None:
    """Puts the cursor on the newest token, or takes it away."""
    if app.scene.mode in CURSOR:
        back(app)
        return
    tokens = app.gaze.state.tokens
    if not tokens:
        app.say("there is no text to inspect yet")
        return
    app.gaze.hold()
    panel = app.scene.panel if app.scene.panel in ("text", "tree") else "text"
    app.look(mode="inspect", cursor=len(tokens) - 1, panel=panel)


def cursor(app: "DynaApp", step: int) -> None:
    """The token before or after."""
    _put(app, (app.scene.cursor or 0) + step)


def cursor_to(app: "DynaApp", place: int) -> None:
    """A token by its place; -1 is the last."""
    _put(app, place if place >= 0 else len(app.gaze.state.tokens) - 1)


def cursor_line(app: "DynaApp", lines: int) -> None:
    """The token above or below."""
    _put(app, app.text_panel.moved(app.scene.cursor or 0, lines))


def cursor_round(app: "DynaApp", rounds: int) -> None:
    """The first token of the round before or after."""
    tokens, inspected = app.gaze.state.tokens, app.scene.inspected
    if inspected is None:
        return
    numbers = sorted({token.round for token in tokens})
    place = min(max(0, numbers.index(inspected.round) + rounds), len(numbers) - 1)
    _put(app, next(index for index, token in enumerate(tokens) if token.round == numbers[place]))


def difference(app: "DynaApp") -> None:
    """Goes to the first token that differs from ar's."""
    state = app.gaze.state
    figures = state.figures().get(state.watched)
    place = figures.first_difference if figures else None
    entry = None if place is None else entry_of(place, state.tokens, state.past)
    if entry is None:
        same = figures is not None and figures.identical_to_ar
        app.say("the text is that of ar so far" if same else "there is no ar lane to compare with")
        return
    app.gaze.hold()
    app.look(mode="inspect", cursor=entry, panel="text")


def heat(app: "DynaApp") -> None:
    """The next meaning of the text's colours."""
    name = HEATS[(HEATS.index(app.scene.heat) + 1) % len(HEATS)]
    app.look(heat=name)
    app.say(f"colours of the text: {_HEAT_NAMES[name]}")


def mask(app: "DynaApp") -> None:
    """The tree as a matrix, or as a tree again."""
    app.look(mask=not app.scene.mask)


def panel(app: "DynaApp", name: PanelName) -> None:
    """Chooses a panel."""
    app.look(panel=name)


def next_panel(app: "DynaApp", step: int) -> None:
    """The next panel, or the one before."""
    app.look(panel=PANELS[(PANELS.index(app.scene.panel) + step) % len(PANELS)])


def maximise(app: "DynaApp") -> None:
    """The chosen panel alone, or all of them."""
    app.look(maximised=not app.scene.maximised)


def back(app: "DynaApp") -> None:
    """One thing less: the slider, the cursor, the single panel, the look back."""
    scene = app.scene
    if scene.mode == "knobs":
        app.look(mode="watch", typed="")
    elif scene.mode in CURSOR:
        if not app.source.playback:
            app.gaze.follow()
        elif scene.mode == "search" and scene.inspected:
            app.gaze.look_at(scene.inspected.round + 1)
        app.look(mode="watch", cursor=None)
    elif scene.maximised:
        app.look(maximised=False)
    else:
        app.gaze.follow()
        app.draw(everything=True)


def help(app: "DynaApp") -> None:  # noqa: A001 - the name of the command
    """Opens the help page."""
    app.push_screen(HelpScreen(app.scene.keys))


def _put(app: "DynaApp", place: int) -> None:
    app.look(cursor=min(max(0, place), max(0, len(app.gaze.state.tokens) - 1)))
