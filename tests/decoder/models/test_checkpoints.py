"""Names of checkpoints: a folder or a hub id."""

import pytest

from decoder.models.checkpoints import looks_like_a_path


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        *((name, False) for name in ("gpt2", "owner/model", "owner/model@refs/pr/1")),
        *(
            (name, True)
            for name in (
                "./model",
                "../model",
                "/model",
                "~/model",
                "models/owner/model",
                "models/owner/model@main",
                "models\\model",
            )
        ),
    ],
)
def test_a_hub_id_has_at_most_one_slash_inside(name: str, folder: bool) -> None:  # noqa: FBT001 - a case
    assert looks_like_a_path(name) is folder
