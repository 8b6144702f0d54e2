"""Findings about a watched server, and whether a profile's predictions (the promise) hold, as lines of text."""

from collections.abc import Iterator

from dynatui.clean import clean_line
from dynatui.number_format import count, short
from dynatui.servers.attach.events import Finding, Findings
from dynatui.state.server_state import ServerState


def line_of(finding: Finding) -> str:
    return clean_line(f"{finding.claim}; {finding.remedy}")


def news(before: ServerState, after: ServerState) -> Iterator[str]:
    """Lines on findings with new causes, and on causes that are no longer found."""
    known, present = ({finding.cause for finding in state.findings} for state in (before, after))
    yield from (line_of(finding) for finding in after.findings if finding.cause not in known)
    yield from (f"no longer found: {cause}" for cause in sorted(known - present) if not after.began_anew)


def final_words(state: ServerState, judged: Findings) -> Iterator[str]:
    """Lines for the end of the session: whether the promise was kept, or why not."""
    if not judged.kept:
        marks = "" if judged.kept is None else "the promise is not kept: "
        yield from (f"{marks}{line_of(finding)}" for finding in judged.findings)
    elif state.promise is not None:
        named = f"{state.promise.profile}, draft {state.promise.draft}"
        yield clean_line(f"the promise of {named} is kept: {compared(state)}")


def compared(state: ServerState) -> str:
    life, chain = state.course.life, state.seen.chain if state.seen else None
    promised = f", promised {short(1 + sum(chain.rates))}" if chain else ""
    return f"L-bar {short(life.length)} in {count(life.rounds)} rounds{promised}"
