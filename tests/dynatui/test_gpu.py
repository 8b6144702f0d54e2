"""Figures of a GPU come from NVML, are absent if NVML has none, and never belong to another GPU."""

import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

import pynvml
import pytest

from dynatui.gpu import Gpu, GpuLoad, energy_counter, gpus, memory_bytes_per_s, open_meters


class SilentError(Exception):
    """Stands in for pynvml.NVMLError."""


def silent(*_about: object) -> NoReturn:
    raise SilentError


def nvml(names: Sequence[str] = ("H200", "H200"), mig: int = 0) -> SimpleNamespace:
    """Stands in for `pynvml`; a handle is the GPU's index or its UUID. `calls` has the calls of `nvmlInit`."""

    def memory(handle: object) -> SimpleNamespace:
        used = 1000 * (handle + 1) if isinstance(handle, int) else 7
        return SimpleNamespace(total=9000, used=used, free=9000 - used)

    calls = list[str]()
    return SimpleNamespace(
        calls=calls,
        NVML_TEMPERATURE_GPU=0,
        NVML_CLOCK_MEM=2,
        nvmlInit=lambda: calls.append("init"),
        nvmlDeviceGetCount=lambda: len(names),
        nvmlDeviceGetHandleByIndex=lambda index: index if index < len(names) else silent(),
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetName=lambda handle: names[handle],
        nvmlDeviceGetMigMode=lambda _: [mig, mig],
        nvmlDeviceGetUtilizationRates=lambda _: SimpleNamespace(gpu=63, memory=20),
        nvmlDeviceGetMemoryInfo=memory,
        nvmlDeviceGetPowerUsage=lambda _: 412500,
        nvmlDeviceGetTotalEnergyConsumption=lambda handle: 2500 * (handle + 1),
        nvmlDeviceGetTemperature=lambda _handle, _sensor: 55,
        nvmlDeviceGetMaxClockInfo=lambda handle, kind: [2619, 3201][handle] if kind == 2 else 1980,
        nvmlDeviceGetMemoryBusWidth=lambda handle: [5120, 6144][handle],
        nvmlDeviceGetCudaComputeCapability=lambda _: (9, 0),
    )


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Any]:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)

    def act(library: Any) -> Any:
        monkeypatch.setitem(sys.modules, "pynvml", library)
        return library

    return act


@pytest.fixture
def library(install: Callable[[Any], Any]) -> Any:
    return install(nvml())


def read(index: int) -> GpuLoad | None:
    return open_meters([f"cuda:{index}"])().get(index)


def used(device: str) -> list[int | None]:
    return [reading.used_bytes for reading in open_meters([device])().values()]


def test_a_reading_has_load_memory_power_and_temperature_or_lacks_those_that_nvml_does_not_answer(library: Any) -> None:
    assert read(0) == GpuLoad(load=0.63, used_bytes=1000, total_bytes=9000, power_w=412.5, temperature_c=55)
    library.nvmlDeviceGetPowerUsage = library.nvmlDeviceGetUtilizationRates = silent
    assert read(0) == GpuLoad(load=None, used_bytes=1000, total_bytes=9000, power_w=None, temperature_c=55)


def test_the_library_is_opened_at_the_first_reading_and_only_then(library: Any) -> None:
    read_again = open_meters(["cuda:1"])
    assert library.calls == []
    assert read_again() == read_again() != {1: read(0)}
    assert library.calls == ["init", "init"]


@pytest.mark.parametrize("device", ["cpu", "auto", "mps", "cuda:x", "cuda:²", "cuda:1000", "cuda:0,cuda:1", ""])
def test_what_is_no_cuda_device_has_no_reading_and_needs_no_library(library: Any, device: str) -> None:
    assert open_meters([device])() == {}
    assert library.calls == []


@pytest.mark.usefixtures("library")
def test_the_bandwidth_follows_from_clock_and_bus_of_the_memory() -> None:
    # H100 SXM: 2619 MHz, two transfers a cycle, 5120 bits; its data sheet says 3.35 TB/s. H200: 4.8 TB/s.
    assert memory_bytes_per_s("cuda") == 2619e6 * 2 * 5120 / 8 == pytest.approx(3.35e12, rel=1e-3)
    assert memory_bytes_per_s("cuda:1") == pytest.approx(4.9e12, rel=1e-2)


@pytest.mark.parametrize("unanswered", ["MaxClockInfo", "MemoryBusWidth"])
def test_what_is_no_gpu_or_tells_no_clock_or_bus_has_no_bandwidth(library: Any, unanswered: str) -> None:
    assert memory_bytes_per_s("cpu") is None
    assert library.calls == []
    assert memory_bytes_per_s("cuda:7") is None
    setattr(library, f"nvmlDeviceGet{unanswered}", silent)
    assert memory_bytes_per_s("cuda") is None


def test_without_the_library_or_a_driver_there_is_no_reading(install: Callable[[Any], Any]) -> None:
    install(None)
    assert (read(0), gpus()) == (None, [])
    install(nvml()).nvmlInit = silent
    assert read(0) is None


def test_a_gpu_that_was_lost_has_no_reading_any_more(library: Any) -> None:
    read_again = open_meters(["cuda"])
    assert read_again()
    for name in ("UtilizationRates", "MemoryInfo", "PowerUsage", "Temperature"):
        setattr(library, f"nvmlDeviceGet{name}", silent)
    assert read_again() == {}


def test_energy_is_the_sum_over_the_run_s_gpus_in_joules(library: Any) -> None:
    one, both = energy_counter(["cuda:1"]), energy_counter(["cuda:0", "cuda:1"])
    assert library.calls == []
    assert (one(), both()) == (5.0, 7.5)


@pytest.mark.parametrize("devices", [["cpu"], ["cuda:7"], ["cuda:0", "cpu"], ["cuda:0", "cuda:0"], []])
def test_energy_is_absent_unless_every_device_of_the_run_is_a_gpu_of_this_machine(
    library: Any, devices: list[str]
) -> None:
    assert energy_counter(devices)() is None
    assert not library.calls or "cuda" in devices[0]


def test_energy_is_absent_where_nvml_does_not_count_it_or_is_missing(
    library: Any, install: Callable[[Any], Any]
) -> None:
    library.nvmlDeviceGetTotalEnergyConsumption = silent
    assert energy_counter(["cuda"])() is None
    assert not any(gpu.counts_energy for gpu in gpus())
    install(None)
    assert energy_counter(["cuda"])() is None


@pytest.mark.usefixtures("library")
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
    monkeypatch: pytest.MonkeyPatch, visible: str, device: str, expected: list[int]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert used(device) == expected


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("devices", ["cuda:0 cuda:1", "cuda cpu cuda:1 cuda:0", "cuda:0 cuda:7 cuda:1"])
def test_several_devices_are_read_each_under_its_number_and_one_that_does_not_answer_not(devices: str) -> None:
    readings = open_meters(devices.split())()
    assert {number: reading.used_bytes for number, reading in readings.items()} == {0: 1000, 1: 2000}


def test_where_cuda_may_number_unlike_gpus_otherwise_or_a_gpu_is_shared_there_is_no_reading(
    install: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(nvml(mig=1))
    assert read(0) is None
    install(nvml(names=("T4", "H200")))
    assert read(0) is None
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert used("cuda:1") == [2000]


def test_all_gpus_are_described(install: Callable[[Any], Any]) -> None:
    install(nvml(names=("T4",)))
    t4 = Gpu("T4", total_bytes=9000, free_bytes=8000, capability=(9, 0), counts_energy=True)
    assert gpus() == [t4]


def test_the_real_library_has_every_name_that_is_asked_for() -> None:
    asked = [name for name in vars(nvml()) if name.startswith(("nvml", "NVML"))]
    assert len(asked) > 10
    assert not [name for name in asked if not hasattr(pynvml, name)]
