"""The ranking of drafts as text: one row a draft, then what limits each."""

from collections.abc import Iterator
from textwrap import wrap

from decoder.analysis.bottleneck import verdict
from decoder.analysis.interval import Interval
from decoder.tuning.ranking import METHODS, Draft, Ranking
from dynatui.clean import clean_line

WIDTH = 80
NAME = 22
UNKNOWN = "-"


def ranking(found: Ranking) -> str:
    """The report, in lines of at most `WIDTH` columns."""
    return "\n".join([*_heading(found), "", *_rows(found), "", *_verdicts(found)]) + "\n"


def _heading(found: Ranking) -> Iterator[str]:
    yield from wrap(f"{clean_line(found.target)} on {found.device} in {found.dtype}, greedy", WIDTH)
    yield f"prompts: {found.prompts}; new tokens: {found.max_new_tokens}; medians with 95 % bootstrap intervals"


def _rows(found: Ranking) -> Iterator[str]:
    heads = [f"{'draft':<{NAME}}", f"{'agrees':>7}", f"{'cost':>6}", f"{'expected':>12}"]
    yield "".join([*heads, *(f"{f'{name} x ar':>16}" for name in METHODS)])
    for draft in found.drafts:
        chain = f"{draft.expected:.2f} at K {draft.chain}" if draft.chain else "no chain"
        cells = [f"{draft.agreement:>7.0%}", f"{draft.cost_ratio:>6.2f}", f"{chain:>12}"]
        yield "".join([_name(draft.name), *cells, *(f"{_interval(draft.measured[name]):>16}" for name in METHODS)])
    yield from wrap(
        "agrees: share of the target's tokens that the draft thinks likeliest too; cost: time of its pass over the "
        "target's; expected: of the best chain, if guesses held independently and verifying many rows took as long as "
        "one.",
        WIDTH,
    )


def _verdicts(found: Ranking) -> Iterator[str]:
    for draft in found.drafts:
        subject = f"{clean_line(draft.name)} by {draft.fastest}"
        known = draft.limits if draft.measured[draft.fastest] else None
        said = " ".join(verdict(known, subject)) if known else _unlimited(draft, subject)
        yield from wrap(said, WIDTH, subsequent_indent="  ")
    for name, why in found.refused.items():
        yield from wrap(f"{clean_line(name)} cannot be used: {clean_line(why)}", WIDTH, subsequent_indent="  ")


def _unlimited(draft: Draft, subject: str) -> str:
    if draft.measured[draft.fastest] is None:
        return f"{subject}: its texts are not the target's in this arithmetic; give --dtype float32."
    return f"{subject} drafts nothing: no guess of this draft pays."


def _name(name: str) -> str:
    shown = clean_line(name)
    return f"{shown if len(shown) < NAME else f'...{shown[-NAME + 4 :]}':<{NAME}}"


def _interval(found: Interval | None) -> str:
    if found is None:
        return UNKNOWN
    ends = "" if found.low is None or found.high is None else f" {found.low:.2f}-{found.high:.2f}"
    return f"{found.value:.2f}{ends}"
