"""Records the traces that pictures and tests use.

    GOMP_SPINCOUNT=10000 python screenshots/record.py first                    the embedded pair
    GOMP_SPINCOUNT=10000 python screenshots/record.py sampled TARGET DRAFT     another pair

Decodes prompts in float32 with the default methods, at the temperature that the screen uses for the embedded pair;
`decoder.system.openmp` explains the variable, which dynatui sets by itself.
`first` is the run that the screen shows first if dynatui is started without options. `sampled` shows the effects of
knobs on tree and curves: tau_l of DynaTree is raised, which makes trees wide; later D0 is lowered to 1, which leaves
few levels, and raised again. Times are measured on this machine, so the race is meaningful only if no other program
runs meanwhile.
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
from dynatui.prompts import embedded
from dynatui.record.recording import Recorder
from dynatui.session import DEMO, EMBEDDED_SEED, EMBEDDED_TEMPERATURE

FOLDER = Path(__file__).parent.parent / "tests" / "traces"
METHOD: RulesName = "dynatree"


@dataclass(frozen=True)
class Trace:
    config: RunConfig
    prompts: Sequence[str]
    turns: Mapping[int, tuple[KnobName, float]] = field(default_factory=dict)
    """Knob and value that are set before a round, by the round's number."""


TRACES = {
    "first": Trace(RunConfig(seed=EMBEDDED_SEED, temperature=EMBEDDED_TEMPERATURE, dynatree=DEMO), embedded()[:1]),
    "sampled": Trace(
        RunConfig(max_new_tokens=160, seed=3, temperature=EMBEDDED_TEMPERATURE),
        (embedded()[1], '"Gentlemen," said the judge, "I have listened to all that'),
        {4: ("tau_l", 0.4), 12: ("d0", 1.0), 22: ("d0", 3.0)},
    ),
}


def events(trace: Trace, target: str | None, draft: str | None) -> Iterator[Event]:
    engine = load_pair(target, draft, dtype="float32", report=print)
    for prompt in trace.prompts:
        steering = Steering()
        for event in decode(engine, prompt, trace.config, steering):
            yield event
            if isinstance(event, Round) and event.method == METHOD and event.round + 1 in trace.turns:
                steering.turn(*trace.turns[event.round + 1], METHOD)


def main() -> None:
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
