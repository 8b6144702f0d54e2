"""Cost of the Gumbel noise of coupled sampling: the noise's share of each method's decode time, for the embedded pair.

    python benchmarks/noise.py FILE ...

This command decodes the beginning of each file with every method, in float32 at temperature .6, and measures the time
in which noise is generated, looked up and added to the draft's logits. Each share has a 95 % confidence interval over
files. The exit code is 1 if the upper end of any interval exceeds the limit.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.append(str(Path(__file__).parents[1]))

from decoder import load_pair
from decoder.engine import Engine
from decoder.events import Round
from decoder.methods.dynatree import PRESETS
from decoder.run.config import RunConfig
from decoder.run.race import decode
from decoder.sampling.noise import GumbelNoise
from dynatui.lab.frame import estimate

BAR = 0.03
METHODS = ("ar", "linear", "fixed", "dynatree", "auto")
_TOKENS, _TEMPERATURE, _CHARACTERS = 128, 0.6, 600


def share(engine: Engine, prompt: str, method: str) -> float:
    """Share of a method's decode time that is spent on noise."""
    noise_s = decode_s = 0.0
    running = False

    def timed(plain: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            nonlocal noise_s, running
            if running:
                return plain(*arguments)
            running, start = True, time.perf_counter()
            result = plain(*arguments)
            noise_s += time.perf_counter() - start
            running = False
            return result

        return run

    config = RunConfig((method,), _TOKENS, temperature=_TEMPERATURE, dynatree=PRESETS["sampled"])
    scores, row = (timed(getattr(GumbelNoise, name)) for name in ("scores", "_row"))
    with patch.object(GumbelNoise, "scores", scores), patch.object(GumbelNoise, "_row", row):
        for event in decode(engine, prompt, config):
            if isinstance(event, Round):
                decode_s = event.t
    return noise_s / decode_s


def main() -> int:
    """Prints the share of each method; returns 1 if the upper end of a share's interval exceeds the limit."""
    parser = argparse.ArgumentParser(description="Cost of the Gumbel noise of coupled sampling.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="text file whose beginning is the prompt")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="number of decodings of each prompt")
    arguments = parser.parse_args()
    engine, failed = load_pair(dtype="float32"), False
    prompts = [file.read_text(encoding="utf-8")[:_CHARACTERS] for file in arguments.files]
    for method in METHODS:
        share(engine, prompts[0], method)
        cost = estimate([[share(engine, prompt, method) for _ in range(arguments.repeats)] for prompt in prompts], 0)
        if cost and cost.low is not None and cost.high is not None:
            failed |= cost.high > BAR
            sys.stdout.write(f"{method:10} {cost.value:6.1%}  {cost.low:.1%}-{cost.high:.1%}\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
