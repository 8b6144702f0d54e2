"""The survey of all families: its page, its kept results, families that crash or hang, and a few measured families."""

import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.decoder.survey import __main__ as survey
from tests.decoder.survey.results import ALL, KEPT, PAGE, Survey, markdown, read, replaced
from tests.decoder.survey.trial import Trial, isolated


def test_the_page_is_made_from_the_kept_results() -> None:
    assert PAGE.read_text(encoding="utf-8") == markdown(read())


def test_every_family_that_the_engine_accepts_is_exact_in_the_kept_results() -> None:
    trials = read().trials
    assert not [trial for trial in trials if trial.route and trial.exact != ALL]
    assert len([trial for trial in trials if trial.exact == ALL and not trial.temperature]) >= 165


def test_a_different_text_is_a_section_of_the_page_with_the_place_of_the_difference() -> None:
    trial = Trial(
        family="llama", temperature=0.0, route="native", exact=ALL[1:], wrong={"ar": "differs from token 3 on"}
    )
    page = markdown(Survey(transformers="5", trials=(trial,)))
    assert "## Different text\n" in page
    assert "| native | ar differs from token 3 on | not measured |  | llama |" in page


def test_a_result_replaces_the_kept_one_in_its_place() -> None:
    def trial(family: str, temperature: float, reason: str) -> Trial:
        return Trial(family=family, temperature=temperature, refused=reason)

    kept = Survey(transformers="5", trials=(trial("a", 0.0, "old"), trial("b", 0.0, "old"), trial("a", 0.7, "old")))
    found = replaced(kept, trial("b", 0.0, "new"))
    assert found.trials == (trial("a", 0.0, "old"), trial("b", 0.0, "new"), trial("a", 0.7, "old"))


def crash(family: str, temperature: float) -> Trial:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError(family, temperature)


def hang(family: str, temperature: float) -> Trial:
    time.sleep(60)
    raise AssertionError(family, temperature)


def test_the_crash_of_a_family_is_a_result() -> None:
    assert isolated("llama", 0.0, 20, crash).ended == f"the process ended with code {-signal.SIGKILL}"


def test_a_family_that_hangs_is_killed_at_the_limit_and_is_a_result() -> None:
    assert isolated("llama", 0.0, 0.1, hang).ended == "no result after 0.1 s"


@pytest.mark.soak
def test_families_of_every_route_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept, page = (shutil.copy(path, tmp_path) for path in (KEPT, PAGE))
    command = ["--families", "llama,gemma2,mamba2,bart"]
    assert survey.main(command, Path(kept), Path(page)) == 0
    lines = capsys.readouterr().out.splitlines()
    results = dict(line.split(": ", 1) for line in lines)
    assert all(
        results[f"{family}, T = {temperature}"].startswith("exact")
        for family in ("llama", "gemma2", "mamba2")
        for temperature in ("0", "0.7")
    )
    assert results["bart, T = 0"].startswith("bart is an encoder-decoder; ")
    assert len(read(Path(kept)).trials) == len(read().trials)
