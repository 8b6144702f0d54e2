"""Free and total memory of the host, as the operating system reports them; imports no torch."""

from contextlib import suppress
from pathlib import Path


def host_memory() -> tuple[int, int] | None:
    """Free and total memory in bytes; None if unknown."""
    with suppress(OSError, ValueError, KeyError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
        return kilobytes["MemAvailable"] << 10, kilobytes["MemTotal"] << 10
    return None
