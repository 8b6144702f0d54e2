"""Records the traces that pictures and tests are drawn from.

    python screenshots/record.py first                    the embedded pair
    python screenshots/record.py sampled TARGET DRAFT     another one

Prompts of our own, decoded in float32 by the default methods and sampled as the screen shows the embedded pair. `first`
is the run that the screen shows first where no options are given. In `sampled`, tau_l of DynaTree is turned up, which
makes trees wide, then D0 down to 1, which leaves few levels, and up again: what a knob does is to be seen in tree and
curves. Times are those of the machine, so for a race that means something nothing else may run on it.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from decoder import decode, load_pair
from decoder.events import Event, Round
from decoder.knobs import KnobName, RulesName
from decoder.run.config import RunConfig
from decoder.session.steering import Steering
from dynatui.prompts.load import embedded
from dynatui.record.recording import Recorder
from dynatui.session import EMBEDDED_SEED, EMBEDDED_TEMPERATURE

FOLDER = Path(__file__).parent.parent / "tests" / "traces"
METHOD: RulesName = "dynatree"


@dataclass(frozen=True)
class Trace:
    """Prompts, and how they are decoded."""

    config: RunConfig
    prompts: Sequence[str]
    turns: Mapping[int, tuple[KnobName, float]] = field(default_factory=dict)
    """Which value is in force from which round on."""


TRACES = {
    "first": Trace(RunConfig(seed=EMBEDDED_SEED, temperature=EMBEDDED_TEMPERATURE), embedded()[:1]),
    "sampled": Trace(
        RunConfig(max_new_tokens=160, seed=3, temperature=EMBEDDED_TEMPERATURE),
        (embedded()[1], '"Gentlemen," said the judge, "I have listened to all that'),
        {4: ("tau_l", 0.4), 12: ("d0", 1.0), 22: ("d0", 3.0)},
    ),
}


def events(trace: Trace, target: str | None, draft: str | None) -> Iterator[Event]:
    """Every event of all prompts."""
    engine = load_pair(target, draft, dtype="float32", report=print)
    for prompt in trace.prompts:
        steering = Steering()
        for event in decode(engine, prompt, trace.config, steering):
            yield event
            if isinstance(event, Round) and event.method == METHOD and event.round + 1 in trace.turns:
                steering.turn(*trace.turns[event.round + 1], METHOD)


def main() -> None:
    """Writes a trace anew."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=TRACES)
    parser.add_argument("target", nargs="?")
    parser.add_argument("draft", nargs="?")
    arguments = parser.parse_args()
    path = FOLDER / f"{arguments.name}.jsonl"
    path.unlink(missing_ok=True)
    with Recorder(path) as recorder:
        for event in events(TRACES[arguments.name], arguments.target, arguments.draft):
            recorder.write(event)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
