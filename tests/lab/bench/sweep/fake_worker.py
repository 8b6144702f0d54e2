"""A worker program without models; arguments: database URL, log of started settings, seconds per measurement, grace."""

import sys
import time
from pathlib import Path

from decoder.errors import DecoderError
from dynatui.lab.bench.sweep.outcome import Outcome
from dynatui.lab.bench.sweep.spaces import Setting
from dynatui.lab.bench.sweep.worker import work
from tests.lab.bench.sweep.sweeps import fake_result, sweep_in


def main(url: str, log: str, measure_s: str, grace_s: str) -> int:
    def measure(setting: Setting) -> Outcome:
        with Path(log).open("a", encoding="utf-8") as file:
            file.write(f"{setting.key}\n")
        time.sleep(float(measure_s))
        return fake_result(setting)

    try:
        work(sweep_in(url, grace_s=float(grace_s)), measure)
    except DecoderError as error:
        sys.stderr.write(f"dynatui: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
