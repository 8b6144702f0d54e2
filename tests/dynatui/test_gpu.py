"""Figures of a GPU come from NVML, are absent if NVML has none, and never belong to another GPU."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NoReturn

import pynvml
import pytest

from dynatui.gpu import Gpu, GpuLoad, gpus, memory_bytes_per_s, open_meters


class SilentError(Exception):
    """Stands in for pynvml.NVMLError."""


def silent(*_about: object) -> NoReturn:
    raise SilentError


@dataclass
class FakeNvml:
    """Stands in for `pynvml`; a handle is the GPU's index or its UUID."""

    names: tuple[str, ...] = ("H200", "H200")
    mig: int = 0
    calls: list[str] = field(default_factory=list)
    NVML_TEMPERATURE_GPU: int = 0
    NVML_CLOCK_MEM: int = 2

    def nvmlInit(self) -> None:  # noqa: N802 - names of NVML, here and below
        self.calls.append("init")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.names)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        if index >= len(self.names):
            raise SilentError
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        return uuid

    def nvmlDeviceGetName(self, handle: int) -> str:  # noqa: N802
        return self.names[handle]

    def nvmlDeviceGetMigMode(self, _handle: int) -> list[int]:  # noqa: N802
        return [self.mig, self.mig]

    def nvmlDeviceGetUtilizationRates(self, _handle: object) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(gpu=63, memory=20)

    def nvmlDeviceGetMemoryInfo(self, handle: object) -> SimpleNamespace:  # noqa: N802
        used = 1000 * (handle + 1) if isinstance(handle, int) else 7
        return SimpleNamespace(total=9000, used=used, free=9000 - used)

    def nvmlDeviceGetPowerUsage(self, _handle: object) -> int:  # noqa: N802
        return 412500

    def nvmlDeviceGetTemperature(self, _handle: object, _sensor: int) -> int:  # noqa: N802
        return 55

    def nvmlDeviceGetMaxClockInfo(self, handle: int, kind: int) -> int:  # noqa: N802
        return [2619, 3201][handle] if kind == self.NVML_CLOCK_MEM else 1980

    def nvmlDeviceGetMemoryBusWidth(self, handle: int) -> int:  # noqa: N802
        return [5120, 6144][handle]

    def nvmlDeviceGetCudaComputeCapability(self, _handle: int) -> tuple[int, int]:  # noqa: N802
        return 9, 0


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Any]:
    """Function that replaces `pynvml` by another library."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)

    def act(library: Any) -> Any:
        monkeypatch.setitem(sys.modules, "pynvml", library)
        return library

    return act


def read(index: int) -> GpuLoad | None:
    return open_meters([f"cuda:{index}"])().get(index)


def used(device: str) -> list[int | None]:
    return [reading.used_bytes for reading in open_meters([device])().values()]


def test_a_reading_has_load_memory_power_and_temperature(install: Callable[[Any], Any]) -> None:
    install(FakeNvml())
    assert read(0) == GpuLoad(load=0.63, used_bytes=1000, total_bytes=9000, power_w=412.5, temperature_c=55)


def test_the_library_is_opened_at_the_first_reading_and_only_then(install: Callable[[Any], Any]) -> None:
    library = install(FakeNvml())
    read_again = open_meters(["cuda:1"])
    assert library.calls == []
    assert read_again() == read_again() != {1: read(0)}
    assert library.calls == ["init", "init"]


@pytest.mark.parametrize("device", ["cpu", "auto", "mps", "cuda:x", "cuda:²", "cuda:1000", "cuda:0,cuda:1", ""])
def test_what_is_no_cuda_device_has_no_reading_and_needs_no_library(install: Callable[[Any], Any], device: str) -> None:
    library = install(FakeNvml())
    assert open_meters([device])() == {}
    assert library.calls == []


def test_the_bandwidth_follows_from_clock_and_bus_of_the_memory(install: Callable[[Any], Any]) -> None:
    install(FakeNvml())
    # H100 SXM: 2619 MHz, two transfers a cycle, 5120 bits; its data sheet says 3.35 TB/s. H200: 4.8 TB/s.
    assert memory_bytes_per_s("cuda") == 2619e6 * 2 * 5120 / 8 == pytest.approx(3.35e12, rel=1e-3)
    assert memory_bytes_per_s("cuda:1") == pytest.approx(4.9e12, rel=1e-2)


@pytest.mark.parametrize("unanswered", ["MaxClockInfo", "MemoryBusWidth"])
def test_without_clock_or_bus_the_bandwidth_is_unknown(install: Callable[[Any], Any], unanswered: str) -> None:
    library = install(FakeNvml())
    setattr(library, f"nvmlDeviceGet{unanswered}", silent)
    assert memory_bytes_per_s("cuda") is None


def test_what_is_no_gpu_has_no_bandwidth(install: Callable[[Any], Any]) -> None:
    library = install(FakeNvml())
    assert memory_bytes_per_s("cpu") is None
    assert library.calls == []
    assert memory_bytes_per_s("cuda:7") is None


def test_without_the_library_there_is_no_reading(install: Callable[[Any], Any]) -> None:
    install(None)
    assert read(0) is None
    assert gpus() == []


def test_without_a_driver_there_is_no_reading(install: Callable[[Any], Any]) -> None:
    install(FakeNvml()).nvmlInit = silent
    assert read(0) is None


def test_a_figure_that_nvml_does_not_answer_is_absent_alone(install: Callable[[Any], Any]) -> None:
    library = install(FakeNvml())
    library.nvmlDeviceGetPowerUsage = library.nvmlDeviceGetUtilizationRates = silent
    assert read(0) == GpuLoad(load=None, used_bytes=1000, total_bytes=9000, power_w=None, temperature_c=55)


def test_a_gpu_that_was_lost_has_no_reading_any_more(install: Callable[[Any], Any]) -> None:
    library = install(FakeNvml())
    read_again = open_meters(["cuda"])
    assert read_again()
    for name in ("UtilizationRates", "MemoryInfo", "PowerUsage", "Temperature"):
        setattr(library, f"nvmlDeviceGet{name}", silent)
    assert read_again() == {}


@pytest.mark.parametrize(
    ("visible", "device", "expected"),
    [
        ("1", "cuda:0", [2000]),
        ("1,0", "cuda:1", [1000]),
        ("GPU-abc", "cuda", [7]),
        ("MIG-abc", "cuda", [7]),
        ("0", "cuda:1", []),
        ("", "cuda", []),
        ("-1", "cuda", []),
        ("8", "cuda", []),
    ],
)
def test_the_gpu_is_the_one_that_cuda_sees_under_this_number(
    install: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch, visible: str, device: str, expected: list[int]
) -> None:
    install(FakeNvml())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert used(device) == expected


@pytest.mark.parametrize("devices", ["cuda:0 cuda:1", "cuda cpu cuda:1 cuda:0"])
def test_several_devices_are_read_each_under_its_number(install: Callable[[Any], Any], devices: str) -> None:
    install(FakeNvml())
    readings = open_meters(devices.split())()
    assert {number: reading.used_bytes for number, reading in readings.items()} == {0: 1000, 1: 2000}


def test_of_several_devices_one_that_does_not_answer_is_left_out(install: Callable[[Any], Any]) -> None:
    install(FakeNvml())
    assert list(open_meters(["cuda:0", "cuda:7", "cuda:1"])()) == [0, 1]


def test_where_cuda_may_number_unlike_gpus_otherwise_there_is_no_reading(
    install: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(FakeNvml(names=("T4", "H200")))
    assert read(0) is None
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert used("cuda:1") == [2000]


def test_a_gpu_in_shares_has_no_reading_as_a_whole(install: Callable[[Any], Any]) -> None:
    install(FakeNvml(mig=1))
    assert read(0) is None


def test_all_gpus_are_described(install: Callable[[Any], Any]) -> None:
    install(FakeNvml(names=("T4",)))
    assert gpus() == [Gpu("T4", total_bytes=9000, free_bytes=8000, capability=(9, 0))]


def test_the_real_library_has_every_name_that_is_asked_for() -> None:
    asked = [name for name in vars(FakeNvml) if name.startswith(("nvml", "NVML"))]
    assert len(asked) > 10
    assert not [name for name in asked if not hasattr(pynvml, name)]
