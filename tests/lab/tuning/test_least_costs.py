"""Costs of a profile that are not measured: least times of passes on a named device."""

import pytest

from decoder.errors import ConfigError
from dynatui.cli.advise import named_device
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


def test_a_target_of_unknown_size_has_no_roofline() -> None:
    with pytest.raises(ConfigError, match="leave --roofline out"):
        least_costs(named_device("H100"), ModelSize(name="target"), {}, 0)
