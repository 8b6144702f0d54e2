"""The devices that `--roofline` names, with the speeds of their data sheets."""

import re
from collections.abc import Mapping
from contextlib import suppress

from decoder.analysis.roofline import DeviceSpeed
from decoder.errors import ConfigError, quoted
from dynatui.servers.costs import NamedDevice

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
"""(GB/s of memory, dense bfloat16 TFLOPS (T4: float16), GB of memory), by the vendors' data sheets; SXM unless another
form factor is named.
"""
_SEVERAL = re.compile(r"(?:([1-9][0-9]{0,2})x)?(.*)", re.DOTALL)


def named_device(text: str) -> NamedDevice:
    """Parses a name of `DEVICES` in any case, several devices such as 2xH100, or GB/s and TFLOPS such as 3350,989;
    raises ConfigError for other text. Speeds of several devices are added; their communication is not counted.
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
