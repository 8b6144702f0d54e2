"""The package exports the names that scripts import, and loads each on first use."""

import subprocess
import sys

import pytest

import decoder


@pytest.mark.parametrize("name", decoder.__all__)
def test_every_promised_name_is_there(name: str) -> None:
    assert getattr(decoder, name).__name__ == name


def test_there_is_nothing_else() -> None:
    with pytest.raises(AttributeError, match="module 'decoder' has no attribute 'warp'"):
        decoder.warp  # noqa: B018 - the access is the test


def test_parameters_steering_and_bounds_are_had_without_torch() -> None:
    light = "from decoder import DecoderError, DynaTree, RunConfig, Stage, Steering, bounds; import sys"
    subprocess.run([sys.executable, "-c", f"{light}; assert 'torch' not in sys.modules"], check=True)
