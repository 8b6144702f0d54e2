"""Times of a server's passes that are not measured: given by the user, or least times from a device's data sheet."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from decoder.analysis.roofline import DeviceSpeed, PassWork, expected_times, verify_s
from decoder.errors import ConfigError, quoted
from dynatui.servers.profile_file import Costs, ModelSize

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 17, 33, 65)
"""Rows of one text whose target pass is in a profile."""
DEVICES: Mapping[str, tuple[float, float, float]] = {
    "B200": (8000, 2250, 180),
    "H200": (4800, 989, 141),
    "H100": (3350, 989, 80),
    "H100-PCIe": (2000, 756, 80),
    "A100-80GB": (2039, 312, 80),
    "A100-40GB": (1555, 312, 40),
    "MI300X": (5300, 1307, 192),
    "L40S": (864, 362, 48),
    "L4": (300, 121, 24),
    "A10": (600, 125, 24),
    "T4": (320, 65, 16),
    "RTX5090": (1792, 209, 32),
    "RTX4090": (1008, 165, 24),
    "RTX3090": (936, 71, 24),
}
"""GB/s of memory, dense bfloat16 TFLOPS (T4: float16) and GB of memory, by the vendors' data sheets; SXM where no form
is named.
"""
_SEVERAL = re.compile(r"(?:([1-9][0-9]{0,2})x)?(.*)", re.DOTALL)


@dataclass(frozen=True)
class NamedDevice:
    name: str
    speed: DeviceSpeed
    memory_bytes: float | None = None


def named_device(text: str) -> NamedDevice:
    """A name of `DEVICES` in any case, several of it such as 2xH100, or GB/s and TFLOPS such as 3350,989; raises
    ConfigError for another text. Several have the sum of their speeds, since what they send each other is not counted.
    """
    known = {name.casefold(): name for name in DEVICES}
    match = _SEVERAL.fullmatch(text.strip().casefold())
    if match and (name := known.get(match[2])):
        number = int(match[1] or 1)
        bandwidth, rate, memory = (number * each for each in DEVICES[name])
        title = f"{number}x{name}" if match[1] else name
        return NamedDevice(title, DeviceSpeed(bandwidth * 1e9, rate * 1e12), memory * 1e9)
    with suppress(ValueError):
        bandwidth, rate = map(float, text.split(","))
        if 0 < bandwidth < 1e9 and 0 < rate < 1e9:
            return NamedDevice(f"{bandwidth:g} GB/s, {rate:g} TFLOPS", DeviceSpeed(bandwidth * 1e9, rate * 1e12))
    remedy = f"give {', '.join(DEVICES)}, several as in 2xH100, or GB/s and TFLOPS such as 3350,989"
    raise ConfigError(f"--roofline is {quoted(text)}; {remedy}")


def given(step_s: float, draft_s: Mapping[str, float]) -> Costs:
    """Costs of a plain step, and of a draft pass by draft, as a user knows them from a server."""
    return Costs(source="given", target_s={1: step_s}, draft_s=dict(draft_s))


def roofline(on: NamedDevice, target: ModelSize, drafts: Mapping[str, ModelSize], context: int) -> Costs:
    """Least times after `context` tokens; a draft of unknown size is left out. Raises ConfigError if the target's size
    is unknown.
    """
    work = _work(target)
    if work is None:
        raise ConfigError(f"--roofline needs the size of {target.name}, which is unknown; leave --roofline out")
    expected = expected_times(work, on.speed, text=context)
    works = {name: found for name, size in drafts.items() if (found := _work(size))}
    return Costs(
        source="roofline",
        device=on.name,
        context=context,
        target_s={rows: verify_s(expected, rows) for rows in ROWS},
        draft_s={
            name: expected_times(work, on.speed, found, text=context).draft_pass_s for name, found in works.items()
        },
        bytes_per_s=on.speed.bytes_per_s,
        flops_per_s=on.speed.flops_per_s,
    )


def _work(size: ModelSize) -> PassWork | None:
    if size.pass_bytes is None:
        return None
    cached = int(size.kv_bytes_per_token or 0)
    return PassWork(int(size.pass_bytes), int(size.weights or 0), lambda text: cached * text)
