"""The race: every method's rate as a bar, its gain over ar, how far it is, and whether its text is ar's."""

from collections.abc import Mapping

from decoder.events import Figures
from dynatui.render.ink import Ink, Row, Rows, bar, column, fit, frame, inside, percent, share, short
from dynatui.render.scene import Scene

_NAME = 9
_NUMBERS = 15
_WIDE = 52


def race(scene: Scene, width: int, height: int) -> Rows:
    """One row a method, in the order of the run."""
    inner, room = inside((width, height))
    title: Row = (("Race", "title"), (" ─ tokens/s, equal time each", "dim"))
    figures = scene.state.figures()
    fastest = max((entry.tokens_per_second or 0.0 for entry in figures.values()), default=0.0)
    body = [_row(scene, name, entry, fastest, inner) for name, entry in figures.items()]
    if not body:
        body = [(("every method decodes the same prompt here", "dim"),)]
    elif room > len(body):
        body.append(_error(scene) or _verdict(scene.state.watched, figures.get(scene.state.watched)))
        if room > len(body) + len(figures) + 1 and inner >= _WIDE:
            body += [(), *_table(scene, figures)]
    return frame(title, body, (width, height))


def _row(scene: Scene, name: str, entry: Figures, fastest: float, width: int) -> Row:
    watched = name == scene.state.watched
    rate = entry.tokens_per_second
    gain = f"{short(entry.speedup)}x" if entry.speedup is not None else ""
    progress = _progress(scene, name, entry) if width >= _WIDE else ""
    length = max(3, width - _NAME - _NUMBERS - len(progress))
    return fit(
        (
            (column(name, _NAME), "strong" if watched else "plain"),
            (bar(share(rate or 0.0, fastest), length), "first" if watched else "bar"),
            (f"{short(rate, 0):>6}/s {gain:>6}", "strong" if watched else "plain"),
            (progress, "dim"),
        ),
        width,
    )


def _table(scene: Scene, figures: Mapping[str, Figures]) -> Rows:
    """How each method comes to its rate, where there is height to spare."""
    heads = ("tokens/round", "acceptance", "drafted", "text of ar")
    rows: Rows = [((" " * _NAME, "dim"), *((f"{head:>14}", "dim") for head in heads))]
    for name, entry in figures.items():
        same = {True: "yes", False: "differs", None: "-"}[entry.identical_to_ar]
        values = (short(entry.tokens_per_round), percent(entry.acceptance_rate), str(_known(entry.drafted)), same)
        ink: Ink = "strong" if name == scene.state.watched else "plain"
        rows.append(((column(name, _NAME), ink), *((f"{value:>14}", ink) for value in values)))
    return rows


def _known(count: int | None) -> int | str:
    return "-" if count is None else count


def _progress(scene: Scene, name: str, entry: Figures) -> str:
    run, end = scene.state.run, scene.state.ends.get(name)
    most = run.max_new_tokens if run else 0
    word = "" if end is None else {"length": "full", "eos": "end"}.get(end.reason, end.reason)
    return f"{entry.committed:>6}/{most} {word:<7}"


def _error(scene: Scene) -> Row:
    """Why a method broke off, if one did."""
    failed = next((end for end in scene.state.ends.values() if end.reason == "error"), None)
    return (("! ", "bad"), (f"{failed.method}: {failed.error or 'broke off'}", "plain")) if failed else ()


def _verdict(watched: str, entry: Figures | None) -> Row:
    if entry is None or entry.identical_to_ar is None or watched == "ar":
        return ()
    if entry.identical_to_ar:
        return (("= ", "good"), (f"{watched} writes exactly the text of ar", "dim"))
    where = f"first difference from ar at token {entry.first_difference}"
    if entry.near_tie is None:
        return (("~ ", "warn"), (where, "dim"))
    return (
        ("~ ", "warn") if entry.near_tie else ("! ", "bad"),
        (f"{where}: {'a near tie' if entry.near_tie else 'not a near tie'}", "dim"),
    )
