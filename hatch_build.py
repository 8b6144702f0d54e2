"""Builds the library of compiled passes, the C files of decoder/forward/compiled, into the wheel, by Zig's C compiler.

Zig is a build requirement from PyPI with headers and libraries of all platforms, so that no compiler need be installed.
On a platform that is not listed here, the wheel has no library, and torch computes the passes.
"""

import hashlib
import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("decoder", "forward", "compiled")
OPTIONS = (
    *("-std=c11", "-O3", "-g0", "-s", "-shared", "-fPIC", "-fvisibility=hidden"),
    # A product and a sum are one operation where the CPU has it, and no sum is reordered.
    *("-ffp-contract=fast", "-fno-math-errno"),
    *("-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"),
)


@dataclass(frozen=True)
class Platform:
    """A platform of wheels."""

    target: str
    """Zig's name of it, with the oldest version of the C library that suffices."""
    cpus: Mapping[str, str]
    """Zig's names of its CPUs, by the names in the libraries' file names (`compiled.library.machine`)."""
    ending: str
    tag: str
    """Tag of its wheels."""


X86 = {level: level for level in ("x86_64_v2", "x86_64_v3", "x86_64_v4")}
PLATFORMS = {
    "linux-x86_64": Platform("x86_64-linux-gnu.2.17", X86, "so", "manylinux_2_17_x86_64"),
    "linux-aarch64": Platform("aarch64-linux-gnu.2.17", {"aarch64": "generic"}, "so", "manylinux_2_17_aarch64"),
    "macosx-arm64": Platform("aarch64-macos.12.0", {"aarch64": "apple_m1"}, "dylib", "macosx_12_0_arm64"),
    "win-amd64": Platform("x86_64-windows-gnu", X86, "dll", "win_amd64"),
}
"""Platforms by their names in `sysconfig`, without versions."""


class LibraryBuilder(BuildHookInterface[Any]):
    """Hook of hatchling."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's interface
        """Builds the library for the platform of this interpreter, or for the one that DYNATUI_PLATFORM names."""
        platform = chosen_platform()
        if platform is None:
            self.app.display_warning(f"no compiled passes for {sysconfig.get_platform()}: torch will compute them")
            return
        built = build(Path(self.root, FOLDER), platform)
        build_data["artifacts"] += [path.relative_to(self.root).as_posix() for path in built]
        build_data["pure_python"], build_data["tag"] = False, f"py3-none-{platform.tag}"


def chosen_platform() -> Platform | None:
    """The platform that DYNATUI_PLATFORM names, or that of this interpreter; None if it is not listed."""
    system, *_, machine = sysconfig.get_platform().split("-")
    return PLATFORMS.get(os.environ.get("DYNATUI_PLATFORM") or f"{system}-{machine}")


def build(folder: Path, platform: Platform) -> list[Path]:
    """Builds the library of `folder` for each CPU of a platform; returns the paths."""
    source = folder / "passes.c"
    # As `source_number` in library.py, which cannot be imported here: it imports torch.
    text = b"".join(path.read_bytes() for path in sorted(folder.glob("*.c")))
    number = int.from_bytes(hashlib.sha256(text).digest()[:4], "little") >> 1
    built = [source.with_name(f"passes-{name}.{platform.ending}") for name in platform.cpus]
    for path, cpu in zip(built, platform.cpus.values(), strict=True):
        command = [sys.executable, "-m", "ziglang", "cc", "-target", platform.target, f"-mcpu={cpu}", *OPTIONS]
        subprocess.run([*command, f"-DSOURCE={number}", "-o", str(path), str(source)], check=True)  # noqa: S603
    return built
