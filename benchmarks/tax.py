"""Slow-down of decoding by the screen: rounds per second of the embedded pair, with and without drawing the screen.

    python benchmarks/tax.py

This command repeatedly decodes the same prompt in one process in a pseudo-terminal of 120x40; the engine uses one
thread. A pair of runs consists of one run with 10 drawn frames per second and one run without drawing, in random order,
so that changes of the machine's load affect both runs alike. The exit code is 1 when the upper end of the slow-down's
95 % confidence interval exceeds the limit.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import fmean

sys.path.append(str(Path(__file__).parents[1]))

from benchmarks.terminal import Terminal
from decoder.events import Event, Round
from decoder.methods.dynatree import PRESETS
from decoder.prompt import AnyPrompt
from decoder.run.config import RunConfig
from decoder.session.steering import Steering
from dynatui.lab.frame import estimate
from dynatui.session import Session, View
from dynatui.sources.engine import Decode, EngineSource, Load, Loaded, Report, load_engine
from dynatui.terminal import guard

BAR = 0.05
_SIZE, _FPS = (120, 40), 10
_TOKENS = 320
_CONFIG = RunConfig(methods=("dynatree",), max_new_tokens=_TOKENS, dynatree=PRESETS["paper"])
"""Configuration with a fixed tree rule, so that the trees do not depend on measured times."""
_SETTLE_S = 0.4
"""Time before each run, in seconds, for the screen to draw changes that it has not drawn yet."""
_WARM_RUNS, _LONG_S = 2, 60.0
_PROMPT = "The captain went down to the harbour before the sun was up, and there he saw"


class Trial:
    """Pairs of runs, one with drawing and one without. Each run's rounds per second are written to the file `notes`."""

    def __init__(self, pairs: int, notes: Path) -> None:
        self.drawing = True
        self.done = False
        self.ui_s = 0.0
        """CPU time of the screen's thread in measured runs so far, in seconds."""
        order = [random.choice(((True, False), (False, True))) for _ in range(pairs)]
        self._plan = iter([True] * _WARM_RUNS + [with_screen for pair in order for with_screen in pair])
        self._notes = notes

    def loader(self, session: Session) -> Load:
        """Loader of an engine whose runs this trial observes."""
        load = load_engine(session)

        def observed(report: Report, progress: Report) -> Loaded:
            import torch  # noqa: PLC0415 - after the app has set its threads

            torch.set_num_threads(1)
            return Loaded(partial(self._run, load(report, progress).decode))

        return observed

    def _run(self, decode: Decode, prompt: AnyPrompt, config: RunConfig, steering: Steering) -> Iterator[Event]:
        drawing = next(self._plan, None)
        if drawing is None:
            self.done = True
            time.sleep(_LONG_S)
            return
        self.drawing = True
        time.sleep(_SETTLE_S)
        self.drawing = drawing
        rounds, began_s, ui_s = 0, 0.0, self.ui_s
        for event in decode(prompt, config, steering):
            if isinstance(event, Round):
                rounds += 1
                began_s = began_s or time.perf_counter()
            yield event
        passed_s = time.perf_counter() - began_s
        with self._notes.open("a", encoding="utf-8") as file:
            file.write(json.dumps([drawing, (rounds - 1) / passed_s, (self.ui_s - ui_s) / passed_s]) + "\n")


def inside(pairs: int, notes: Path) -> None:
    """Runs the app in the pseudo-terminal and writes the trial's measurements to `notes`."""
    from dynatui.screen import app  # noqa: PLC0415 - imports textual, which only this process needs

    trial = Trial(pairs, notes)

    class Observed(app.DynaApp):
        """The app, which draws nothing while the trial has paused the screen."""

        def _timed_tick(self) -> None:
            if trial.done:
                self.action_leave()
            elif trial.drawing:
                began_s = time.thread_time()
                super()._timed_tick()
                trial.ui_s += time.thread_time() - began_s

    # The run ends after its last prompt, and the trial with the one after its plan.
    session = Session(prompts=(_PROMPT,) * (2 * pairs + _WARM_RUNS + 1), config=_CONFIG, view=View(speed=1.0))
    source = EngineSource(session, trial.loader(session), rest_s=0.0)
    with guard.screen_only(Path(os.devnull)) as output:
        Observed(source, View(speed=1.0, fps=_FPS), output=output).run(mouse=False)
    os._exit(0)  # without cleanup, which would wait for the engine's thread: it is in the middle of a prompt


def main() -> int:
    """Prints rounds per second with and without drawing, and the slow-down with its confidence interval; returns 1 if
    the upper end of the interval exceeds the limit.
    """
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=64)
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        inside(arguments.pairs, arguments.inside)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder) / "notes.jsonl"
        command = [sys.executable, __file__, "--pairs", str(arguments.pairs), "--inside", str(notes)]
        outside = Terminal(command, _SIZE, {"OMP_NUM_THREADS": "1"})
        while outside.process.poll() is None:
            outside.read(0.5)
            outside.written.clear()
        rates = [json.loads(line) for line in notes.read_text(encoding="utf-8").splitlines()][_WARM_RUNS:]
    share = fmean(share for drawing, _, share in rates if drawing)
    both = [(drawing, rate) for drawing, rate, _ in rates]
    pairs = [dict(both[place : place + 2]) for place in range(0, len(both) - 1, 2)]
    with_screen, without = fmean(pair[True] for pair in pairs), fmean(pair[False] for pair in pairs)
    tax = estimate([[1 - pair[True] / pair[False] for pair in pairs]], seed=0)
    if tax is None or tax.low is None or tax.high is None:
        raise SystemExit("nothing was measured; give --pairs 2 or more")
    sys.stdout.write(
        f"rounds/s without the screen {without:.1f}, with the screen {with_screen:.1f}, in {len(pairs)} pairs of runs\n"
        f"the thread of the screen used {share:.1%} of a core\n"
        f"UI tax {tax.value:.1%} (95 % interval {tax.low:.1%} to {tax.high:.1%}; the limit is {BAR:.0%})\n"
    )
    return int(tax.high > BAR)


if __name__ == "__main__":
    sys.exit(main())
