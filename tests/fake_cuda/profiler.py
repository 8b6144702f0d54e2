"""torch's profiler for the fake device: which operators each launch and each replay of a graph runs, without times."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace

from tests.fake_cuda.tensors import Device, Launch


@dataclass(frozen=True)
class Event:
    """An operator in place of a kernel; it takes no time, since nothing can be known about times."""

    operator: str
    launch: int

    def device_type(self) -> str:
        """Kind of the device that ran it."""
        return "CUDA"

    def name(self) -> str:
        """Name of the operator."""
        return self.operator

    def start_ns(self) -> int:
        """0; see the class."""
        return 0

    def duration_ns(self) -> int:
        """0; see the class."""
        return 0

    def correlation_id(self) -> int:
        """Number of the launch, from 1; the operators of a replay share it."""
        return self.launch


class Profile:
    """Stands in for `torch.profiler.profile`."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._began = 0, 0
        self._launched: list[Sequence[Launch]] = []
        self.profiler = SimpleNamespace(kineto_results=SimpleNamespace(events=self._events))

    def __enter__(self) -> "Profile":
        self._began = len(self._device.replayed), len(self._device.launches)
        return self

    def __exit__(self, *_: object) -> None:
        replays, direct = self._began
        self._launched = [graph.launches for graph in self._device.replayed[replays:]]
        self._launched += [[launch] for launch in self._device.launches[direct:]]

    def _events(self) -> Sequence[Event]:
        """Operators of the replays and of the direct launches during the profile."""
        return [Event(f"aten::{each.name}", number) for number, run in enumerate(self._launched, 1) for each in run]
