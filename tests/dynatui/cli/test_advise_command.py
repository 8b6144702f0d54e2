"""`dynatui advise` from a terminal's point of view: what it prints, errors in one line, and devices by name."""

import json
from pathlib import Path

import pytest

from decoder.errors import ConfigError
from dynatui import main as cli
from dynatui.cli.advise import DEVICES, named_device
from dynatui.servers.engines import ENGINES
from dynatui.servers.profile_file import Costs, write_profile
from tests.dynatui.servers.profiles import CODE, WRITING, constant, draft, profile


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.json"
    here = Costs(source="measured", device="cpu", target_s={1: 0.01, 8: 0.011, 64: 0.02}, draft_s={"org/Head": 0.0005})
    drafts = {
        "org/Head": draft(CODE),
        "org/Small": draft(WRITING, kind="model"),
        "lookup": draft(constant(0.3), kind="lookup", size=None),
    }
    write_profile(path, profile(drafts, costs=here))
    return path


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.main(["advise", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("server", ENGINES)
def test_advice_names_its_costs_and_ends_with_commands_to_paste(
    mine: Path, server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = said(capsys, mine, "--server", server)
    assert (code, err) == (0, "")
    assert "costs: passes measured on cpu, without what a server adds" in out
    assert f"# {ENGINES[server].title} {ENGINES[server].version}" in out
    assert "without drafts, to measure against" in out
    assert "org/Small" in out


def test_the_result_is_also_one_json_object(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, mine, "--json", "--concurrency", "1-16", "--roofline", "H100")
    found = json.loads(out)
    assert code == 0
    assert found["loads"] == [1, 4, 16]
    assert found["at_most"]
    assert found["deployment"]["draft"] == "org/Head"
    assert found["commands"]["advised"]["text"].startswith("vllm serve org/Target-8B")
    assert len(found["drafts"][0]["chains"]) == len(CODE)


def test_given_times_are_used(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = said(capsys, mine, "--step-ms", "37.7", "--draft-ms", "26", "--round-ms", "35", "--json")
    found = json.loads(out)
    assert found["deployment"]["draft"] == "lookup", "with these times no drafted token of a model pays"
    chain = next(each for each in found["drafts"] if each["draft"] == "org/Head")["chains"][0]
    assert chain["break_even"][0] == pytest.approx((37.7 + 35 + 26) / 37.7)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--server", "ollama"], "--server is 'ollama'; give one of vllm, sglang, llama.cpp"),
        (["--concurrency", "64-1"], "--concurrency is '64-1'; give numbers of requests"),
        (["--concurrency", "many"], "--concurrency is 'many'"),
        (["--concurrency", "0"], "--concurrency is '0'"),
        (["--concurrency", "1-9999"], "up to 1024"),
        (["--roofline", "Voodoo 2"], "--roofline is 'Voodoo 2'; give B200"),
        (["--step-ms", "soon", "--draft-ms", "1"], "--step-ms is 'soon'; give milliseconds such as 37.7"),
        (["--step-ms", "0", "--draft-ms", "1"], "--step-ms is '0'; give one time above 0"),
        (["--step-ms", "10,20", "--draft-ms", "1"], "--step-ms is '10,20'; give one time"),
        (["--step-ms", "10", "--draft-ms", "1,2,3"], "one time, or one for each of org/Head, org/Small; 3 are given"),
        (["--step-ms", "10", "--draft-ms", "-1"], "--draft-ms is '-1'; give milliseconds"),
        (["--step-ms", "10"], "--step-ms needs --draft-ms with one time"),
        (["--draft-ms", "1"], "--draft-ms and --round-ms need --step-ms"),
        (["--category", "poems"], "no draft has rounds of category 'poems'"),
    ],
)
def test_a_wrong_option_is_refused_in_one_line(
    mine: Path, arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = said(capsys, mine, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert told in err


@pytest.mark.parametrize("content", ["", "rubbish", "{}", "[]", '{"schema": 9}', "\0" * 100, '{"schema": 1}'])
def test_a_file_that_is_no_profile_is_refused_in_one_line(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.json"
    path.write_text(content)
    code, out, err = said(capsys, path)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "mine.json" in err


def test_a_profile_without_drafts_still_has_a_command_without_drafts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.json"
    write_profile(path, profile({}, draft_errors={"org/Head": "cannot be read"}))
    code, out, _ = said(capsys, path, "--roofline", "L4")
    assert code == 0
    assert "left out: org/Head, cannot be read" in out
    assert "vllm serve org/Target-8B" in out


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
