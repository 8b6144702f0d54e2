"""Records the trace that the screenshots and the snapshot tests are drawn from.

    python screenshots/record.py                          the embedded pair
    python screenshots/record.py TARGET DRAFT             another one

Two prompts of our own; in each, tau_h is turned down once, so that a turned knob is to be seen.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from decoder import decode, load_pair
from decoder.config import RunConfig
from decoder.events import Event, Round
from decoder.steering import Steering
from dynatui.keep.recording import Recorder
from dynatui.prompts.load import embedded

TRACE = Path(__file__).parent.parent / "tests" / "traces" / "demo.jsonl"
CONFIG = RunConfig(max_new_tokens=160)
PROMPTS = (0, 1)
TURNED_AT = 24
TAU_H = 0.75


def events(target: str | None, draft: str | None) -> Iterator[Event]:
    """Every event of both prompts."""
    pair = load_pair(target, draft, report=print)
    prompts = embedded()
    for number in PROMPTS:
        steering = Steering()
        for event in decode(pair, prompts[number], CONFIG, steering):
            yield event
            if isinstance(event, Round) and event.method == "dynatree" and event.round == TURNED_AT:
                steering.turn("tau_h", TAU_H)


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
