"""Sentences on a server: the warning of wasted drafts, the summary of a session, durations.

Text from the server is cleaned here by `clean_line`. Knows no panel.
"""

from dynatui.attach.events import Wasted
from dynatui.clean import clean_line
from dynatui.number_format import count, percent, short
from dynatui.state.server_state import ServerState


def wasted(waste: Wasted, t: float) -> tuple[str, str]:
    """Long and short wording. A round takes at least the time of a plain pass, so L-bar bounds the speed-up."""
    duration, share, length = time_text(t - waste.since), percent(waste.acceptance_rate), short(waste.tokens_per_round)
    of_drafted = f"{share} of {count(waste.drafted)} drafted tokens accepted"
    bound = f"{length} tokens a round, so at most {length} times as fast as without drafts, even if they cost nothing"
    return (
        f"drafts wasted for {duration}: {of_drafted}, {bound}; decoding is likely slower",
        f"drafts wasted for {duration}: {share} accepted, likely slower than without drafts",
    )


def summary(state: ServerState) -> str:
    if state.reading is None or state.server is None:
        return ""
    session, title = state.reading.session, state.kind.title if state.kind else state.server.kind
    figures = f"L-bar {short(session.tokens_per_round)}, acceptance rate {short(session.acceptance_rate)}"
    speed = f"{short(session.tokens_per_second, 1)} tokens/s"
    alarm = f"; {wasted(state.wasted, state.t)[-1]}" if state.wasted else ""
    return clean_line(f"{title} at {state.server.url}, watched for {time_text(state.t)}: {figures}, {speed}{alarm}")


def time_text(seconds: float) -> str:
    """A duration in its two largest units: 12 s, 3 min 4 s, 5 h 6 min."""
    whole = int(min(seconds, 1e9))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
