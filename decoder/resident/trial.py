"""Whether rounds on this device are what rounds driven by the host are: tried before any user's text depends on them.

Drivers, kernels and versions of torch differ in what they can capture. Where a few short texts fail or come out
otherwise, the pair goes on with rounds from the host, and says why.
"""

from collections.abc import Sequence

from decoder.config import PRESETS, Auto, Fixed, Linear, Rules, RunConfig
from decoder.engine import Session, TreeSession
from decoder.models import Pair
from decoder.resident.session import ResidentSession

TRIED: tuple[Rules | None, ...] = (None, Linear(2), Fixed(depth=2, branching=2), *PRESETS.values(), Auto())
PROMPT = (1, 2, 3, 4, 5, 6)
TOKENS = 6
"""So few that a near tie among them, which rounding may decide either way, is most unlikely."""


def refusal(pair: Pair) -> str | None:
    """Why rounds cannot run on this pair's device; None: they can."""
    config = RunConfig(max_new_tokens=TOKENS)
    for rules in TRIED:
        expected = _text(TreeSession(pair, PROMPT, config, rules))
        try:
            found = _text(ResidentSession(pair, PROMPT, config, rules))
        except Exception as error:  # noqa: BLE001 - whatever a model, a driver or torch objects to, the host can go on
            return (str(error).strip().splitlines() or [type(error).__name__])[0]
        if found != expected:
            return f"they wrote the tokens {found} instead of {expected}"
    return None


def _text(session: Session) -> Sequence[int]:
    session.prefill()
    text: list[int] = []
    try:
        while True:
            outcome = session.step(())
            text += outcome.committed
            if outcome.finished:
                return text
    finally:
        session.close()
