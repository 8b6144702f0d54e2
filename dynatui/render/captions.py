"""Captions of the tour: before the first round, the idea of speculative decoding; then each stage of a round."""

from decoder.analysis.metrics import by_depth, drafted_nodes
from decoder.events import Round
from decoder.session.steering import StageName
from dynatui.render.ink import Rows
from dynatui.render.scene import Scene
from dynatui.render.wrap import wrapped

IDEA = (
    "A small draft model guesses several tokens ahead, as a tree. A large target model checks them all at once and "
    "keeps the path that it would have written itself: the same text, sooner."
)
_LEAST_BESIDE = 2


def caption(scene: Scene, width: int, room: int) -> Rows:
    """Begins with a blank row; empty if the whole caption has no room."""
    held = scene.held_stage
    if held is not None:
        text = _of_stage(held.name, held.event)
    else:
        text = IDEA if scene.touring or scene.state.lane.newest is None else ""
    rows = [(), *wrapped(((text, "strong"),), width)] if text else []
    return rows if len(rows) + _LEAST_BESIDE <= room else []


def _of_stage(name: StageName, event: Round) -> str:
    drafted, accepted, committed = drafted_nodes(event), len(event.accepted), len(event.committed)
    if name == "drafted":
        if not drafted:
            return "1 of 3, drafted: no guess this time, the target decodes alone."
        levels = len(by_depth(event))
        return (
            f"1 of 3, drafted: the small model has guessed {_counted(drafted, 'token')}, as a tree of "
            f"{_counted(levels, 'level')}. None of it is text yet."
        )
    if name == "verified":
        agreed = (
            f"{accepted} of the guesses, on one path, are the model's own choice too"
            if accepted
            else "None of the guesses is the model's own choice"
        )
        return f"2 of 3, verified: the large model has checked all guesses in one pass. {agreed}."
    return (
        f"3 of 3, committed: the path, and one more token by the target, are now part of the text. "
        f"{_counted(committed, 'token')} for one pass."
    )


def _counted(number: int, name: str) -> str:
    return f"{number} {name}" if number == 1 else f"{number} {name}s"
