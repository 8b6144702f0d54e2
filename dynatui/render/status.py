"""First line (run, device, state), tab line, time line (position of the shown round in the run, and knob changes) and
last line (keys); parts that do not fit are omitted by rank.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeAlias

from rich.cells import cell_len

from decoder.errors import shortened
from decoder.events import arithmetic
from decoder.session.steering import StageName
from dynatui.clean import clean_line
from dynatui.keymap import FIRST_MODES, LEFT_OUT, PANELS, Key, PanelName
from dynatui.number_format import short
from dynatui.render.cards import expected_words, gpu_wordings, headline, rate
from dynatui.render.ink import Ink, Row, Rows, Span, best_row, fit, fitting, joined, merged, share, width_of
from dynatui.render.sampling import light_words
from dynatui.render.scene import Scene
from dynatui.render.words import drawing_words, note_within, sampling_words

_GAP: Row = (("  ", "plain"),)
_ARROWS = str.maketrans({"←": "left", "→": "right", "↑": "up", "↓": "down"})
_NARROW = 40
_NEEDED = 2
"""The first part leaves room for parts up to this rank: headline, state of the run, and whether the run is recorded."""
_FEW = 4
_STAGE_WORDS: dict[StageName, str] = {
    "drafted": "tree drafted",
    "verified": "tree verified",
    "committed": "path committed",
}
_SHORT: dict[PanelName, str] = {"whatif": "What if"}
Button: TypeAlias = tuple[Span, str]
"""A part of a line, and the action of a click on it; the action is empty if there is none."""


@dataclass(frozen=True)
class _Part:
    rank: int
    """The most important part has rank 0; a narrow terminal omits the parts with the largest ranks first."""
    wordings: tuple[Row, ...]
    right: bool = False


def speed_text(speed: float) -> str:
    whole = 0 < speed < 1 and (1 / speed).is_integer()
    return f"1/{1 / speed:.0f}x" if whole else f"{speed:.3g}x"


def activity(scene: Scene) -> Row:
    state = scene.state
    if state.failure:
        return (("ERROR", "bad"),)
    standstill = _standstill(scene)
    if standstill:
        return standstill
    if state.run is None:
        return ((f"loading: {state.under_way}, {scene.waited_s:.0f} s", "warn"),)
    if state.done:
        last = scene.replaying and state.prompt is not None and state.prompt.number == state.prompt.total
        if scene.following or last:
            return (("run ended" if scene.following else "replay ended", "good"),)
        follows = f", {scene.keys.cap('prompt(1)')} runs all prompts again" if state.over else ", next prompt follows"
        return (("done", "good"), (follows, "dim"))
    return (("following" if scene.following else "replaying" if scene.replaying else "decoding", "good"),)


def _standstill(scene: Scene) -> Row:
    """Why the view does not advance, with the key that resumes; empty while the view advances."""
    number, last, cap = scene.number, scene.place.rounds, scene.keys.cap
    steps: Row = ((f" {cap('step')} goes on", "dim"), (f", {cap('pause')} resumes decoding", "dim"))
    if scene.touring:
        return (("ONE ROUND, SLOWLY", "warn"), (" any key goes on", "dim")) if scene.held_stage else ()
    where = "" if scene.place.live else " before the first round" if number is None else f" round {number} of {last}"
    if scene.broke and scene.paused:
        return ((f"HELD {scene.broke}", "warn"), *steps)
    if scene.held_stage is not None:
        return ((f"HELD round {number}: {_STAGE_WORDS[scene.held_stage.name]}", "warn"), *steps)
    if scene.paused:
        return ((f"PAUSED{where}", "warn"), (f" {cap('pause')} resumes", "dim"))
    if scene.frozen or where:
        return ((f"FROZEN{where}", "warn"), (f" {cap('freeze')}: back to now", "dim"))
    return ()


def status(scene: Scene, width: int, height: int) -> Rows:
    if width < _NARROW:
        return essentials(scene, width, height)
    parts = [*_left_parts(scene), *_right_parts(scene)]
    chosen = _fitting_parts(parts, width)
    left = joined([row for part, row in chosen if not part.right], _GAP)
    right = joined([row for part, row in chosen if part.right], _GAP)
    if not right:
        return [fit(left, width)]
    return [(*left, (" " * (width - width_of(left) - width_of(right)), "plain"), *right)]


def _fitting_parts(parts: Sequence[_Part], width: int) -> list[tuple[_Part, Row]]:
    """Parts that fit, in line order. Cells go first to the lowest rank, then to more parts, then to longer wordings."""
    worded = dict[int, Row]()
    free = width + width_of(_GAP)
    ranked = sorted(range(len(parts)), key=lambda place: parts[place].rank)
    needed = [parts[place].wordings[-1] for place in ranked[1:] if parts[place].rank <= _NEEDED]
    room = width - sum(width_of(row) + width_of(_GAP) for row in needed)
    for place in ranked:
        wordings = parts[place].wordings
        row = wordings[-1] if worded else next((row for row in wordings if width_of(row) <= room), wordings[-1])
        if width_of(row) + width_of(_GAP) <= free or not worded:
            worded[place], free = row, free - width_of(row) - width_of(_GAP)
    for place in ranked:
        if place in worded:
            room = free + width_of(worded[place])
            worded[place] = next((row for row in parts[place].wordings if width_of(row) <= room), worded[place])
            free = room - width_of(worded[place])
    return [(part, worded[place]) for place, part in enumerate(parts) if place in worded]


def _left_parts(scene: Scene) -> Iterator[_Part]:
    state, doing, sentence = scene.state, activity(scene), headline(scene.state)
    rank = 0 if _standstill(scene) or not sentence else 1
    yield _Part(1, sentence or (((" dynatui ", "logo"),),))
    yield _Part(rank, tuple(doing[:count] for count in range(len(doing), 0, -1)))
    if scene.preparing:
        yield _Part(3, (((scene.preparing, "dim"),),))
    if state.prompt:
        yield _Part(3, (((f"prompt {state.prompt.number}/{state.prompt.total}", "plain"),),))
    if state.run is not None:
        yield _Part(6, (((f"speed {speed_text(scene.speed)}", "plain"),),))
    if scene.recording:
        yield _Part(2, ((("● REC", "bad"),),))
    if light := light_words(state):
        yield _Part(4, light)


def _right_parts(scene: Scene) -> Iterator[_Part]:
    run = scene.state.run
    if run is not None:
        by, sign = (" ← drafted through text by ", "← text ←") if run.translated else (" ← drafted by ", "←")
        long: Row = ((run.target, "strong"), (by, "dim"), (run.draft, "strong"))
        yield _Part(5, (long, ((f"{run.target} {sign} {run.draft}", "dim"),), ((run.target, "dim"),)), right=True)
        targets = arithmetic(run.dtype, "", exact=run.exact)
        yield _at_right(8, "dim", f"{run.place} {run.arithmetic}", f"{run.place} {targets}", run.place)
        sampled = sampling_words(scene.state, scene.pending)
        for words in sampled:
            yield _at_right(4 if len(sampled) > 1 else 8, "warn" if "→" in words else "dim", words)
        if drawing := drawing_words(scene.state, scene.pending):
            yield _at_right(3, "warn" if "→" in drawing[0] else "dim", *drawing)
        if expected := expected_words(scene.state):
            yield _at_right(7, "dim", *expected)
    if run is not None and run.device.startswith("cuda") and run.path not in ("", "cuda graphs"):
        # On a GPU, only CUDA graphs give the full speed, so any other decoding path is shown as a warning.
        reason = (f"path: {run.path}, {run.path_reason}",) if run.path_reason else ()
        yield _at_right(5, "warn", *reason, f"path: {run.path}")
    yield from _meter_parts(scene)


def _meter_parts(scene: Scene) -> Iterator[_Part]:
    meters = scene.meters
    if scene.gpus:
        watched = scene.state.figures().get(scene.state.watched)
        yield _at_right(7, "dim", *gpu_wordings(scene.gpus, watched.joules_per_token if watched else None))
    if meters.fps > 0 and meters.slow_line:
        yield _at_right(4, "warn", f"{meters.fps:.0f} fps, slow line", "slow line")
    elif meters.fps > 0:
        yield _at_right(10, "dim", f"{meters.fps:.0f} fps")
    if meters.ui_share is not None:
        yield _at_right(9, "dim", f"UI {100 * meters.ui_share:.1f} %")
    if meters.bytes_per_s is not None:
        yield _at_right(11, "dim", f"{short(meters.bytes_per_s / 1000, 0)} KB/s")


def _at_right(rank: int, ink: Ink, *wordings: str) -> _Part:
    return _Part(rank, tuple(((words, ink),) for words in wordings), right=True)


def essentials(scene: Scene, width: int, _height: int) -> Rows:
    if scene.note:
        return [fit(((note_within(scene.note, width), "strong"),), width)]
    state = scene.state
    entry, knobs, doing = state.figures().get(state.watched), state.lane.knobs, activity(scene)
    if entry is None:
        return [fit(doing[:1], width)]
    depth: Row = ((f"D0 {math.floor(knobs.d0 + 0.5)}", "second"),) if knobs else ()
    per_second = rate(state, state.watched)
    speed: Row = () if per_second is None else ((f"{short(per_second, 0)}/s", "first"),)
    yielded: Row = ((f"L-bar {short(entry.tokens_per_round)}", "first"),)
    sentence = best_row(width, *(headline(state)[-2:] or [()]))
    parts = [part for part in (sentence, doing[:1], speed, yielded, depth) if part]
    return [fitting([(*part, (" ", "plain")) for part in parts], width)]


def tabs(scene: Scene, width: int, _height: int) -> Rows:
    return [fit(joined(_tabs(scene, width), ()), width)]


def tab_action(scene: Scene, width: int, x: int) -> str:
    named = zip(PANELS, _tabs(scene, width), strict=True)
    return _action_at([(span, f"panel({name!r})") for name, tab in named for span in tab], x)


def _action_at(buttons: Sequence[Button], x: int) -> str:
    end = 0
    for (text, _), action in buttons:
        end += cell_len(text)
        if x < end:
            return action
    return ""


def _tabs(scene: Scene, width: int) -> list[Row]:
    """A narrower terminal omits the gaps, then the names of the panels that are not shown."""
    for before, after in ((" ", " "), ("", " "), ("", "")):
        named = [_tab(scene, name, before, after) for name in PANELS]
        if width_of(joined(named, ())) <= width:
            return named
    return [
        _tab(scene, name, "", "") if name == scene.panel else ((str(number), "key"), (" ", "plain"))
        for number, name in enumerate(PANELS, 1)
    ]


def _tab(scene: Scene, name: PanelName, before: str, after: str) -> Row:
    title: Span = (_SHORT.get(name, name.capitalize()), "tab" if name == scene.panel else "dim")
    return ((f"{before}{PANELS.index(name) + 1}{after}", "key"), title, (" ", "plain"))


def footer(scene: Scene, width: int, _height: int) -> Rows:
    return [fit(merged(span for span, _ in _footer(scene, width)), width)]


def footer_action(scene: Scene, width: int, x: int) -> str:
    """Action of a click in column `x` of the footer; empty if there is none."""
    return _action_at(_footer(scene, width), x)


def _footer(scene: Scene, width: int) -> list[Button]:
    head: list[Button] = []
    if scene.mode not in FIRST_MODES or scene.maximised:
        name = "expanded" if scene.mode in FIRST_MODES else scene.mode
        back: list[Button] = [((f" {scene.keys.cap('back')} ", "key"), "back"), (("back ", "dim"), "back")]
        head = [((f" {name.upper()} ", "tab"), ""), *back]
    if scene.mode == "search":
        number = next((place for place, hit in enumerate(scene.hits, 1) if scene.cursor in hit), None)
        where = f"{number} of {len(scene.hits)}" if number else f"{len(scene.hits)} found"
        head += [((f' "{shortened(clean_line(scene.query))}" ', "strong"), ""), ((f"{where} ", "dim"), "")]
    if scene.note:
        head.append(((f" {note_within(scene.note, width - _cells(head) - 2)} ", "strong"), ""))
    usable = [key for key in scene.keys.every if scene.mode in key.modes and not (head and "back" in key.actions)]
    return [*head, *buttons(usable, width - _cells(head), in_words=scene.symbols == "ascii")]


def buttons(table: Sequence[Key], width: int, *, in_words: bool) -> list[Button]:
    """Buttons for the keys that fit, by rank. If a key has only one action, a click on its label has this action."""
    room, chosen = width, list[tuple[int, list[Button]]]()
    ranked = [(place, key) for place, key in enumerate(table) if key.rank < LEFT_OUT and key.caps]
    for place, key in sorted(ranked, key=lambda item: item[1].rank):
        named: list[Button] = [((f" {cap}", "key"), action) for cap, action in _caps(key, in_words=in_words)]
        label = key.different[0] if len(key.different) == 1 else ""
        part: list[Button] = [*named, ((" ", "key"), label), ((f"{key.label} ", "dim"), label)]
        if _cells(part) > room:
            break
        room -= _cells(part)
        chosen.append((place, part))
    return [button for _, part in sorted(chosen, key=itemgetter(0)) for button in part]


def _cells(buttons: Sequence[Button]) -> int:
    return width_of(tuple(span for span, _ in buttons))


def caps(key: Key) -> str:
    return " ".join(cap for cap, _ in _caps(key))


def _caps(key: Key, *, in_words: bool = False) -> list[tuple[str, str]]:
    """The keys in short form, each with its action. A row of digits is written as its first and last digit, without an
    action; of several keys with the same action, only the first is written.

    With `in_words`, arrow keys are written as words, since their ASCII signs, `<` and `>`, are other keys.
    """
    pairs = list(zip(key.shown, key.actions, strict=True))
    digits = [cap for cap in key.shown if cap.isdecimal()]
    if len(digits) > _FEW:
        return [(f"{digits[0]}-{digits[-1]}", ""), *(pair for pair in pairs if not pair[0].isdecimal())]
    first = [pair for place, pair in enumerate(pairs) if pair[1] not in key.actions[:place]]
    return [(cap.translate(_ARROWS) if in_words else cap, action) for cap, action in first]


_LEAST, _WIDE = 8, 80
"""Least length of the line, and least width of the terminal at which the long wording is beside it, in cells."""


def timeline(scene: Scene, width: int, height: int) -> Rows:
    words, length = _timeline_words(scene, width), _track_length(scene, width)
    row: Row = ((" ", "plain"), *_track(scene, length), (" " if length else "", "plain"), *words)
    return [fit(row, width), *[fit((), width)] * (height - 1)]


def round_at(scene: Scene, width: int, x: int) -> int | None:
    """The round at a clicked column; the ends of the line stand for the first and the last round."""
    length = _track_length(scene, width)
    cell = x - 2
    if length < 1 or not -1 <= cell <= length - 2:
        return None
    return round(share(cell, length - 3) * scene.place.rounds)


def _track(scene: Scene, length: int) -> Row:
    if length < 1:
        return ()
    place, inner = scene.place, length - 2
    marker = _cell_of_round(scene.number or 0, place.rounds, inner)
    played = _cell_of_round(place.rounds if place.played is None else place.played, place.rounds, inner)
    cells: list[Span] = [("━", "bar") if cell < played else ("─", "frame") for cell in range(inner)]
    for mark in scene.newest_state.lane.marks:
        cells[_cell_of_round(mark.round, place.rounds, inner)] = ("▲", "warn" if mark.round <= place.round else "ghost")
    cells[marker] = ("●", "good" if place.live else "warn")
    return merged([("◀", "dim"), *cells, ("▶", "dim")])


def _cell_of_round(number: int, rounds: int, cells: int) -> int:
    return round(share(number, rounds) * (cells - 1))


def _track_length(scene: Scene, width: int) -> int:
    """Length of the line with its ends, in cells; constant while the numbers beside it grow."""
    digits = max(4, len(str(scene.place.rounds)))
    spare = width - 2 - 2 * digits - (len("round  of  · 0000.0 s · looking ahead") if width >= _WIDE else 1)
    return spare if spare >= _LEAST else 0


def _timeline_words(scene: Scene, width: int) -> Row:
    place, number = scene.place, scene.number
    last = max(place.rounds, number or 0)
    ink: Ink = "plain" if place.live else "warn"
    if number is None:
        return (("before the first round" if width >= _WIDE else "no round", ink),)
    if width < _WIDE:
        return ((f"{number}/{last}", ink),)
    where: Span = ("live", "good") if place.live else (f"looking {'ahead' if place.ahead else 'back'}", "warn")
    return (f"round {number} of {last} · {short(place.seconds, 1)} s · ", "plain"), where
