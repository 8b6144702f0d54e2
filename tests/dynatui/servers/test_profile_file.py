"""A profile is written and read unchanged; a file that is none is refused in a line that names the field."""

from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from decoder.errors import ConfigError
from dynatui.servers.profile_file import (
    SCHEMA,
    Acceptance,
    Chain,
    Costs,
    DraftProfile,
    ModelSize,
    Profile,
    read_profile,
    write_profile,
)

GROUP = Acceptance(rounds=40, survival=(0.8, 0.5), shorter=(Chain(rounds=60, survival=(0.7,)),))
PROFILE = Profile(
    schema=SCHEMA,
    target="org/target",
    size=ModelSize(name="org/target", weights_bytes=16e9),
    drafts={
        "draft": DraftProfile(
            **structs.asdict(GROUP), kind="model", by_category={"code": GROUP}, by_context={"<1k": GROUP}
        )
    },
    costs=Costs(source="measured", target_s={1: 0.03, 2: 0.031}, draft_s={"draft": 0.002}),
    prompts=3,
    tokens=300,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_profile(tmp_path / "mine.json", PROFILE)
    return tmp_path / "mine.json"


def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as refused:
        read_profile(path)
    return str(refused.value)


def test_a_profile_is_read_as_it_was_written(file: Path) -> None:
    assert read_profile(file) == PROFILE
    draft = read_profile(file).drafts["draft"]
    assert (draft.at(1).mean_length, draft.at(2).mean_length) == (1.7, 2.3)
    assert msgspec.json.decode(file.read_bytes())["schema"] == SCHEMA


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ('"rounds": 40', '"rounds": "many"', "$.drafts[...].rounds"),
        ("0.8,\n", "1.8,\n", "survival"),
        ("0.8,\n", "-0.1,\n", "survival"),
        ("0.8,\n", "0.3,\n", "survival increases with the position - at `$.drafts[...]`"),
        ('"prompts": 3', '"prompts": null', "$.prompts"),
        ('"kind": "model"', '"kind": "oracle"', "$.drafts[...].kind"),
        ('"schema": 1', '"schema": 2', "schema 2"),
        ('"schema": 1', '"scheme": 1', "schema"),
        ('"target": "org/target"', '"targets": 1', "target"),
        ('"measured"', '"guessed"', "$.costs.source"),
        ("0.002", "1e999", "$.costs.draft_s"),
        ("0.7", "0.7, 0.6", "shorter and survival have 2, 2 rates, not 1, 2, ..."),
        ('"shorter"', '"further"', "shorter and survival have 2 rates"),
        ("{", "", "no profile"),
    ],
)
def test_a_wrong_field_is_named_in_one_line(file: Path, old: str, new: str, field: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")
    said = refusal(file)
    assert field in said
    assert "\n" not in said


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"schema": 1e400}'])
def test_rubbish_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rubbish.json"
    path.write_bytes(content)
    assert "rubbish.json" in refusal(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "absent.json")
    assert "directory" in refusal(tmp_path)
    with pytest.raises(ConfigError, match="cannot write"):
        write_profile(tmp_path / "no" / "mine.json", PROFILE)
