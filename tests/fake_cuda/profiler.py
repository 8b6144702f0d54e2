"""torch's profiler for the fake device: how often each operator runs, in replays of graphs or alone, without times."""

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace

from tests.fake_cuda.tensors import Device


class Profile:
    """Stands in for `torch.profiler.profile`."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._began = 0, 0
        self._names = Counter[str]()

    def __enter__(self) -> "Profile":
        self._began = len(self._device.replayed), len(self._device.launches)
        return self

    def __exit__(self, *_: object) -> None:
        replays, direct = self._began
        of_graphs = (launch for graph in self._device.replayed[replays:] for launch in graph.launches)
        self._names.update(launch.name for launch in (*of_graphs, *self._device.launches[direct:]))

    def key_averages(self) -> Sequence[SimpleNamespace]:
        """Operators in place of kernels; they take no time, since nothing can be known about times."""
        return [
            SimpleNamespace(key=f"aten::{name}", count=count, self_device_time_total=0.0, device_type="DeviceType.CUDA")
            for name, count in self._names.items()
        ]
