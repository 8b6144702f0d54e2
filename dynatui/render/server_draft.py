"""The present drafting of a watched server, for servers that report it instead of acceptance by position."""

from dynatui.attach.events import Drafting
from dynatui.number_format import count, short
from dynatui.render.ink import Row, Rows, best, column, frame, inside
from dynatui.render.server import Size
from dynatui.render.wrap import wrapped

_TITLE: Row = (("Drafts", "title"), (" ─ as they are now", "dim"))
_LONGEST_NAME, _LONGEST_VALUE = 32, 10
_WITH_OWN = "the target's own token is counted in all but the steps; acceptance by position is not told"


def drafting(drafts: Drafting, size: Size) -> Rows:
    """Steps and tokens of a round; where only some tokens are verified, their number and the length for all."""
    width = max(1, inside(size)[0])
    told = (
        (drafts.steps, count(drafts.steps), ("steps of the draft in a round", "steps")),
        (drafts.draft_tokens, count(drafts.draft_tokens), ("tokens that a round may verify", "tokens")),
        (drafts.cap_length, short(drafts.cap_length), ("tokens that it verifies, mean", "verified")),
        (drafts.block_accept_length, short(drafts.block_accept_length), ("acceptance length if all were", "uncapped")),
    )
    room = max(1, min(_LONGEST_NAME, width - _LONGEST_VALUE))
    rows: Rows = [
        ((column(best(room, *names), room), "plain"), (f"{value:>{_LONGEST_VALUE}}", "strong"))
        for figure, value, names in told
        if figure is not None
    ]
    return frame(_TITLE, [*rows, *wrapped([(_WITH_OWN, "dim")], width)], size)
