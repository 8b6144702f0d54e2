"""The replay of a recording of drawn trees shows the same as the live run."""

from pathlib import Path

from decoder.events import Event, Summary, encode
from dynatui.record.reader import Runs
from screenshots.make import standing_at
from tests.dynatui.screen.shown_app import screen_text
from tests.dynatui.scripted_runs import delayed_run, drawn_round


async def test_a_replay_has_the_light_the_chances_and_the_depths_and_follows_a_look_back(tmp_path: Path) -> None:
    told: list[Event] = [delayed_run(("delayed",)), *(drawn_round(number, generator=0.1) for number in range(40))]
    path = tmp_path / "drawn.jsonl"
    path.write_bytes(b"".join(map(encode, [*told, Summary(methods={})])))
    app = standing_at(Runs(path), 1.0)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("9")
        page = screen_text(app)
        assert "● losslessness light: green" in page
        assert "over 40 rounds" in page
        assert "traversal, delayed (2, 1, 2)" in page
        assert "x2 62%" in page
        await pilot.press("home")
        await pilot.press(*["right"] * 3)
        assert "too few tokens to judge: 9 of 50" in screen_text(app)
        assert "over 3 rounds" in screen_text(app)
