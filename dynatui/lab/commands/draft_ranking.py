"""The report of a ranking of drafts as text: a table with a row per draft, then the bottleneck of each draft."""

from collections.abc import Iterator
from textwrap import wrap

from decoder.analysis.bottleneck import bottleneck_sentences
from dynatui.clean import clean_line
from dynatui.lab.tables.data import WIDTH, Column, Spec, Table, hundredths, interval, of_rows, text
from dynatui.lab.tuning.drafts import METHODS, Draft, Ranking

NAME = 22


def ranking(results: Ranking) -> str:
    return "\n".join([*_heading(results), "", text(_table(results)), "", *_verdicts(results)]) + "\n"


def _heading(results: Ranking) -> Iterator[str]:
    yield from wrap(f"{clean_line(results.target)} on {results.device} in {results.dtype}, greedy", WIDTH)
    yield f"prompts: {results.prompts}; new tokens: {results.max_new_tokens}; medians with 95 % bootstrap intervals"


def _table(results: Ranking) -> Table:
    def over(method: str) -> Spec[Draft]:
        return Column(f"{method} x ar", width=16), lambda draft: interval(draft.measured[method], hundredths)

    specs: list[Spec[Draft]] = [
        (Column("draft", width=NAME), lambda draft: _name(draft.name)),
        (Column("agrees", width=7), lambda draft: f"{draft.agreement:.0%}"),
        (Column("cost", "number", 2, 6), lambda draft: draft.cost_ratio),
        (Column("expected", width=12), _chain),
        *map(over, METHODS),
    ]
    notes = wrap(
        "agrees: share of the target's tokens that are also the draft's most probable tokens; cost: time of a draft "
        "pass divided by the time of a target pass; expected: speed-up of the best chain by its tokens a round "
        "on these texts, if a pass over many rows took as long as a pass over one row.",
        WIDTH,
    )
    return of_rows(specs, results.drafts, notes=notes)


def _chain(draft: Draft) -> str:
    return f"{draft.expected:.2f} at K {draft.chain}" if draft.chain else "no chain"


def _verdicts(results: Ranking) -> Iterator[str]:
    for draft in results.drafts:
        subject = f"{clean_line(draft.name)} by {draft.fastest}"
        known = draft.limits if draft.measured[draft.fastest] else None
        sentence = " ".join(bottleneck_sentences(known, subject)) if known else _unlimited(draft, subject)
        yield from wrap(sentence, WIDTH, subsequent_indent="  ")
    for name, why in results.refused.items():
        yield from wrap(f"{clean_line(name)} cannot be used: {clean_line(why)}", WIDTH, subsequent_indent="  ")


def _unlimited(draft: Draft, subject: str) -> str:
    if draft.measured[draft.fastest] is None:
        return f"{subject} writes texts that differ from those of plain decoding in this dtype; give --dtype float32."
    return f"{subject} drafts nothing: no guess of this draft saves time."


def _name(name: str) -> str:
    shown = clean_line(name)
    return shown if len(shown) < NAME else f"...{shown[-NAME + 4 :]}"
