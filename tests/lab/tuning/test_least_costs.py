"""Costs that are not measured: least times of a named device."""

import pytest

from decoder.analysis.roofline import DEVICES, named_device
from decoder.errors import ConfigError
from dynatui.lab.tuning.profiling import least_costs
from dynatui.servers.profile_file import ModelSize

TARGET = ModelSize(name="target", pass_bytes=16e9, weights=8e9, kv_bytes_per_token=131072)


def test_a_roofline_is_the_longer_of_reading_and_arithmetic() -> None:
    costs = least_costs(named_device("1000,100"), TARGET, {"small": ModelSize(name="small", pass_bytes=1e9)}, 1000)
    read_s = (16e9 + 131072 * 1000) / 1e12
    assert costs.source == "roofline"
    assert costs.target_s[1] == pytest.approx(read_s)
    assert costs.target_s[65] == pytest.approx(max(read_s, 65 * 2 * 8e9 / 100e12))
    assert costs.draft_s == {"small": pytest.approx(1e-3)}


def test_a_device_has_a_name_in_any_case_or_two_numbers_and_several_have_the_sums() -> None:
    bandwidth, rate, memory = DEVICES["H100"]
    one, two = named_device("h100"), named_device("2xh100")
    assert one.speed == named_device(f"{bandwidth},{rate}").speed
    assert (two.name, two.speed.bytes_per_s) == ("2xH100", 2 * one.speed.bytes_per_s)
    memories = [each.memory_bytes for each in (one, two, named_device("1000,100"))]
    assert memories == [memory * 1e9, 2 * memory * 1e9, None]


@pytest.mark.parametrize("text", ["", "H1000", "0xH100", "xH100", "1", "1,2,3", "0,1", "nan,1", "1e99,1", "-1,5"])
def test_an_unknown_device_is_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(ConfigError, match=r"H100.*GB/s"):
        named_device(text)


def test_a_target_of_unknown_size_has_no_roofline() -> None:
    with pytest.raises(ConfigError, match="leave --roofline out"):
        least_costs(named_device("H100"), ModelSize(name="target"), {}, 0)
