"""A recording is played at the speed that was given, or the speed is refused."""

from pathlib import Path

import pytest

from dynatui import main as cli
from dynatui.record.recording import Recorder
from dynatui.sources.playback import TraceSource
from tests.dynatui.cli.fake_screen import FakeScreen
from tests.dynatui.scripted_runs import story


@pytest.mark.parametrize(("given", "speed"), [("0.001", 0.001), ("1/100", 0.01), ("100", 100.0), ("1000", 1000.0)])
def test_every_speed_that_the_option_takes_is_played(
    screen: FakeScreen, tmp_path: Path, given: str, speed: float
) -> None:
    with Recorder(tmp_path / "run.jsonl") as recorder:
        for event in story(2):
            recorder.write(event)
    assert cli.main(["replay", str(tmp_path / "run.jsonl"), "--speed", given]) == 0
    runs, view = screen.replays[-1]
    assert TraceSource(runs, speed=view.speed).speed == speed
