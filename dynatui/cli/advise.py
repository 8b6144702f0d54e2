"""`dynatui advise`: prints options for a server, derived from a profile of prompts and from times of passes, or from
data sheets of devices.
"""

import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
from msgspec import structs

from decoder.analysis.roofline import DeviceSpeed
from decoder.errors import ConfigError, quoted, shortened
from dynatui.cli.parameters import Declared, argument, in_panel, option, switch
from dynatui.record.reader import server_events
from dynatui.servers.costs import NamedDevice
from dynatui.servers.engines import ENGINES, Deployment, shell
from dynatui.terminal import streams

_WIDEST, _NARROWEST = 120, 60
_LONGEST_S = 1000.0
_COSTS = "Costs of passes, instead of those in the profile"


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


def _range(text: str) -> tuple[int, int]:
    from dynatui.servers.advice import MOST_STREAMS  # noqa: PLC0415 - not needed for --help

    first, _, last = str(text).partition("-")
    with suppress(ValueError):
        loads = int(first), int(last or first)
        if 1 <= loads[0] <= loads[1] <= MOST_STREAMS:
            return loads
    known = f"give numbers of requests, as in 8 or 1-64, up to {MOST_STREAMS}"
    raise ConfigError(f"--concurrency is {quoted(text)}; {known}")


def seconds(option_name: str, text: str) -> tuple[float, ...]:
    """Converts a comma-separated list of milliseconds to seconds; raises ConfigError if the list is invalid."""
    with suppress(ValueError):
        values = tuple(float(part) / 1000 for part in str(text).split(","))
        if all(0 <= value < _LONGEST_S for value in values):
            return values
    raise ConfigError(f"{option_name} is {quoted(text)}; give milliseconds such as 37.7")


def one_time(option_name: str, text: str, *, positive: bool = False) -> float:
    values = seconds(option_name, text)
    if len(values) > 1 or (positive and not values[0]):
        above = " above 0" if positive else ""
        raise ConfigError(f"{option_name} is {quoted(text)}; give one time{above} in milliseconds, such as 37.7")
    return values[0]


step_time = partial(one_time, "--step-ms", positive=True)


PARAMETERS: Declared = (
    argument("path", "FILE", "A profile, as written by dynatui profile.", Path),
    option(
        f"--server {'|'.join(ENGINES)}",
        "The engine of the server.",
        default="vllm",
        complete=lambda _: tuple(ENGINES),
    ),
    option("--concurrency N|N-M", "Running requests, least and most.", default="1-64", parse=_range),
    option("--category NAME", "Use only the prompts of this category."),
    *in_panel(
        _COSTS,
        option(
            "--recording FILE",
            "A recording of dynatui attach, from which step times are read. May be repeated; one should be of the "
            "server without drafts.",
            list[Path],
            name="recordings",
        ),
        option("--step-ms MS", "Time of a step of the server without drafts, in milliseconds.", parse=step_time),
        option(
            "--draft-ms MS,..",
            "Beside --step-ms: what a drafted token adds to a step, for each draft but lookup in the profile's order, "
            "or one number for all.",
            parse=partial(seconds, "--draft-ms"),
        ),
        option(
            "--round-ms MS",
            "Beside --step-ms: what drafting adds to a step, whatever the number of tokens.",
            parse=partial(one_time, "--round-ms"),
        ),
        option(
            "--roofline DEVICE|GB/S,TFLOPS",
            "Minimum pass times on a device, such as H100 or 2xH100, by its data sheet and the profile's model sizes.",
        ),
    ),
    switch("--json", "Print the advice as one JSON object.", name="as_json"),
)


def advise(
    path: Path,
    server: str,
    concurrency: tuple[int, int],
    category: str | None,
    recordings: list[Path] | None,
    step_ms: float | None,
    draft_ms: tuple[float, ...] | None,
    round_ms: float | None,
    roofline: str | None,
    *,
    as_json: bool,
) -> int:
    """Say which draft, and how many tokens of it, a server should use, by the number of running requests.

    Reads a profile of your prompts and the costs of passes. Prints the engine's options to paste, the command without
    drafts to measure against, and where the engine has it, a variant that accepts drafted tokens at random at the
    predicted rate. Loads no models.
    """
    from dynatui.render.advice import advice_lines, curve_lines  # noqa: PLC0415 - not needed for --help
    from dynatui.servers.advice import advised  # noqa: PLC0415
    from dynatui.servers.attach.course import load_points  # noqa: PLC0415
    from dynatui.servers.costs import source  # noqa: PLC0415
    from dynatui.servers.profile_file import read_profile  # noqa: PLC0415

    if server not in ENGINES:
        raise ConfigError(f"--server is {quoted(server)}; give one of {', '.join(ENGINES)}")
    if step_ms is None and (draft_ms is not None or round_ms is not None):
        raise ConfigError("--draft-ms and --round-ms need --step-ms; give the time of a step without drafts too")
    profile = read_profile(path)
    on = named_device(roofline) if roofline else None
    points = [point for each in recordings or () for point in load_points(server_events(each))]
    if recordings and not points:
        named = ", ".join(map(shortened, recordings))
        raise ConfigError(f"--recording {named} has no time of a step; record the server while it serves requests")
    costs = source(profile, points=points, step_s=step_ms, draft_s=draft_ms or (), drafting_s=round_ms or 0.0, on=on)
    advice = advised(profile, costs, ENGINES[server], concurrency, category)
    out, _ = streams.for_printing()
    if as_json:
        streams.show(f"{msgspec.json.encode(advice).decode()}\n", out)
        return 0
    width = max(_NARROWEST, min(_WIDEST, shutil.get_terminal_size().columns))
    lines = [*advice_lines(advice, width), *curve_lines(advice, width)]
    blocks = list(advice.commands.blocks())
    if deployment := advice.deployment:
        several, stop = len(profile.drafts) > 1, advice.drafts[0].stop
        promise = "to check whether the server reaches the prediction"
        blocks.append((promise, _check(path, deployment, named=several)))
        if stop:
            stopped = structs.replace(deployment, k=stop.k, p_min=stop.p_min, bands=())
            blocks.append((f"{promise}, with p_min", _check(path, stopped, named=several)))
    for title, text in blocks:
        lines += ["", f"# {title}", text]
    streams.show("\n".join(lines) + "\n", out)
    return 0


def _check(profile: Path, deployment: Deployment, *, named: bool) -> str:
    """The command that compares a server with the profile; `named`: whether the profile has several drafts."""
    drafts = ",".join(f"{band.first}-{band.last}:{band.k}" for band in deployment.bands) or str(deployment.k)
    return shell(
        ["dynatui", "attach", "http://HOST:PORT", "--expect", str(profile)],
        ["--deployed", deployment.draft] if named else [],
        ["--draft-tokens", drafts],
        ["--p-min", f"{deployment.p_min:g}"] if deployment.p_min else [],
    )
