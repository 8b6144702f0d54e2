"""The title of a tree: stage and outcome of its round."""

from decoder.analysis.metrics import drafted_nodes
from decoder.events import LENGTH, Round
from decoder.session.steering import StageName
from dynatui.number_format import nth, short
from dynatui.render.drawn import shape_written


def titles(event: Round, stage: StageName = "committed") -> tuple[str, ...]:
    """Wordings, the longest first, with the lost time if the round stalled."""
    wordings = _progress(event, stage)
    if not event.stalled_s:
        return wordings
    stalled = f"stalled {short(event.stalled_s)} s"
    return (*(f"{words}, {stalled}" for words in wordings), stalled)


def _progress(event: Round, stage: StageName) -> tuple[str, ...]:
    drafted, accepted = drafted_nodes(event), len(event.accepted)
    name = f"round {nth(event.round)}: "
    if not drafted and event.draft_forwards is not None:
        text = "no draft" if event.draft_forwards == 0 else "no guess kept"
        if event.limited_by == LENGTH:
            text = "the last token"
        return f"{name}{text}", text
    if stage == "drafted":
        return f"{name}{drafted} drafted, not yet verified", f"{name}{drafted} drafted, unverified"
    if stage == "verified":
        text = f"{drafted} drafted, {accepted} accepted, not committed"
        return f"{name}{text}", f"{name}{accepted} kept, not committed"
    grown = f"drawn as {shape_written(event.shape)}" if event.shape else "drafted"
    return f"{name}{drafted} {grown}, {accepted} accepted", f"{name}{accepted} of {drafted} accepted"
