"""The first line (what runs, where, in which state), the tab line and the last line (keys)."""

from dynatui.keymap import KEYMAP, TABS
from dynatui.render.ink import Row, Rows, fit, fitting, joined, spread, width_of
from dynatui.render.scene import Scene

_GAP: Row = (("  ", "plain"),)


def speed_text(speed: float) -> str:
    """A speed as a whole factor or a fraction."""
    whole = speed < 1 and (1 / speed).is_integer()
    return f"1/{1 / speed:.0f}x" if whole else f"{speed:.3g}x"


def activity(scene: Scene) -> Row:
    """The state of the work in one or two words."""
    state = scene.state
    if state.failure:
        return (("ERROR", "bad"),)
    if scene.paused:
        return (("PAUSED", "warn"), (" P resumes", "dim"))
    if scene.frozen:
        return (("FROZEN", "warn"), (" space resumes", "dim"))
    if state.run is None:
        message = state.loading[-1] if state.loading else "starting"
        return ((f"loading: {message}", "warn"),)
    if state.done:
        last = scene.replaying and state.prompt is not None and state.prompt.number == state.prompt.total
        return (("replay ended" if last else "done, next prompt follows", "good"),)
    return (("replaying" if scene.replaying else "decoding", "good"),)


def status(scene: Scene, width: int, height: int) -> Rows:
    """Program, state, prompt and models; the right end gives way in a narrow terminal."""
    del height
    state, run = scene.state, scene.state.run
    parts: list[Row] = [((" dynatui ", "logo"),), activity(scene)]
    if state.prompt:
        parts.append(((f"prompt {state.prompt.number}/{state.prompt.total}", "plain"),))
    if run is not None:
        parts.append(((f"speed {speed_text(scene.speed)}", "plain"),))
    if scene.recording:
        parts.append((("● REC", "bad"),))
    if run is None:
        return [fitting([(*part, *_GAP) for part in parts], width)]
    left = joined(parts, _GAP)
    names: Row = ((run.target, "strong"), (" ← drafted by ", "dim"), (run.draft, "strong"))
    for right in (
        (*names, (f"  {run.device} {run.dtype}  greedy  seed {run.seed} ", "dim")),
        (*names, (f"  {run.device} {run.dtype} ", "dim")),
        ((f"{run.target} ← {run.draft}  {run.device} {run.dtype} ", "dim"),),
        ((f"{run.target} ← {run.draft}  {run.device} ", "dim"),),
        ((f"{run.target} ← {run.draft} ", "dim"),),
        ((f"{run.target} ", "dim"),),
    ):
        if width_of(left) + width_of(right) + 2 <= width:
            return [spread(left, right, width)]
    return [fitting([(*part, *_GAP) for part in parts], width)]


def tabs(scene: Scene, width: int, height: int) -> Rows:
    """Which panel is shown where they share one place."""
    del height
    names: list[Row] = [
        ((f" {number} ", "key"), (f"{name.capitalize()} ", "tab" if name == scene.tab else "dim"))
        for number, name in enumerate(TABS, 1)
    ]
    return [fit(joined(names, (("", "plain"),)), width)]


def footer(scene: Scene, width: int, height: int) -> Rows:
    """As many keys as fit, the most needed first."""
    del height, scene
    chosen: list[tuple[int, Row]] = []
    room = width
    for place, key in sorted(enumerate(KEYMAP), key=lambda item: item[1].rank):
        part: Row = ((f" {key.caps[0] if key.label == 'quit' else key.shown} ", "key"), (f"{key.label} ", "dim"))
        if width_of(part) > room:
            break
        room -= width_of(part)
        chosen.append((place, part))
    return [fit(joined([part for _, part in sorted(chosen)], (("", "plain"),)), width)]
