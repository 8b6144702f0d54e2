"""Whether the text is the one that plain greedy decoding writes: the badge of the first line, the word in a table."""

from decoder.events import Figures
from dynatui.number_format import short
from dynatui.render.ink import Row
from dynatui.state.run_state import RunState


def badge(state: RunState) -> tuple[Row, ...]:
    """Wordings from the longest to the shortest; none without ar, or while ar itself is watched."""
    figures = state.figures()
    entry, ar = figures.get(state.watched), figures.get("ar")
    if entry is None or ar is None or state.watched == "ar" or not entry.committed:
        return ()
    if entry.identical_to_ar is False:
        return _difference(entry.first_difference, near_tie=entry.near_tie, gap=entry.first_difference_gap)
    compared = f"{min(entry.committed, ar.committed)}/{entry.committed}"
    if not ar.committed:
        return ((("ar behind", "dim"),),)
    if ar.committed < entry.committed and "ar" not in state.ends:
        return (((f"= ar {compared}", "good"), (" ar behind", "dim")), ((f"= ar {compared}", "good"),))
    return (((f"= ar {compared}", "good"),),)


def same_as_ar(figures: Figures, differs: str) -> str:
    """The same in a word; `differs` where it is another text and no near tie is known."""
    if figures.identical_to_ar is not False:
        return "-" if figures.identical_to_ar is None else "yes"
    return "near tie" if figures.near_tie else differs


def tie_words(figures: Figures, before: str = "") -> str:
    """Whether the first difference is a near tie, after words that lead to it; nothing where that is not known."""
    return "" if figures.near_tie is None else f"{before}{'' if figures.near_tie else 'not '}a near tie"


def _difference(token: int | None, *, near_tie: bool | None, gap: float | None) -> tuple[Row, ...]:
    where = f"from token {token}" if token is not None else "somewhere"
    if near_tie is False:
        return (((f"! differs from ar {where}", "bad"),), (("! differs", "bad"),))
    told = "" if gap is None else f", gap {short(gap, 3)}"
    verdict = f" (near tie{told})" if near_tie else ""
    return (((f"~ ar {where}{verdict}", "warn"),), ((f"~ ar {where}", "warn"),), (("~ ar", "warn"),))
