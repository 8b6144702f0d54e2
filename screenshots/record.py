"""Records the trace that pictures and tests are drawn from.

    python screenshots/record.py                          the embedded pair
    python screenshots/record.py TARGET DRAFT             another one

Two prompts of our own, decoded in float32 by the default methods and sampled as the screen shows the embedded pair. In
each, tau_l of DynaTree is turned up, which makes trees wide, then D0 down to 1, which leaves few levels, and up again:
what a knob does is to be seen in tree and curves. Times are those of the machine, so for a race that means something
nothing else may run on it.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from decoder import decode, load_pair
from decoder.config import RulesName, RunConfig
from decoder.events import Event, Round
from decoder.knobs import KnobName
from decoder.session.steering import Steering
from dynatui.prompts.load import embedded
from dynatui.record.recording import Recorder
from dynatui.session import EMBEDDED_TEMPERATURE

TRACE = Path(__file__).parent.parent / "tests" / "traces" / "sampled.jsonl"
CONFIG = RunConfig(max_new_tokens=160, seed=3, temperature=EMBEDDED_TEMPERATURE)
METHOD: RulesName = "dynatree"
PROMPTS = (embedded()[1], '"Gentlemen," said the judge, "I have listened to all that')
TURNS: Mapping[int, tuple[KnobName, float]] = {4: ("tau_l", 0.4), 12: ("d0", 1.0), 22: ("d0", 3.0)}
"""Which value is in force from which round on."""


def events(target: str | None, draft: str | None) -> Iterator[Event]:
    """Every event of both prompts."""
    engine = load_pair(target, draft, dtype="float32", report=print)
    for prompt in PROMPTS:
        steering = Steering()
        for event in decode(engine, prompt, CONFIG, steering):
            yield event
            if isinstance(event, Round) and event.method == METHOD and event.round + 1 in TURNS:
                steering.turn(*TURNS[event.round + 1], METHOD)


def main() -> None:
    """Writes the trace anew."""
    target, draft = sys.argv[1:3] if len(sys.argv) == 3 else (None, None)
    TRACE.unlink(missing_ok=True)
    with Recorder(TRACE) as recorder:
        for event in events(target, draft):
            recorder.write(event)
    print(f"{TRACE}: {TRACE.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
