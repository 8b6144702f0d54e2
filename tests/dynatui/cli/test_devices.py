"""Devices by name, with the speeds of their data sheets."""

import pytest

from decoder.errors import ConfigError
from dynatui.cli.advise import DEVICES, named_device


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
