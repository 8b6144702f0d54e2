"""Names for drafts without a separate model, parts of hub ids, and checks of the names of target and draft; imports no
torch.
"""

from typing import Literal, TypeAlias

from decoder.errors import ConfigError, require
from decoder.events import HeadKind

LOOKUP = "lookup"
"""Name for suffix lookup (`decoder.draft.lookup`), given in place of the name of a draft model."""
MTP = "mtp"
"""Name for the target's own MTP layer (`decoder.models.mtp`), given in place of the name of a draft model."""
DraftKind: TypeAlias = Literal["model", "lookup"] | HeadKind


def repository(name: str) -> str:
    """`owner/model` of `owner/model@revision`."""
    return name.partition("@")[0]


def revision(name: str) -> str:
    return name.partition("@")[2]


def require_both(target: str | None, draft: str | None) -> None:
    """Raises ConfigError if only one of target and draft model is named."""
    require(
        target is None or draft is not None,
        "a target needs a draft; give --draft MODEL, or --draft lookup, which copies drafts from earlier in the text",
        "target",
    )
    require(
        target is not None or draft in (None, LOOKUP),
        "a draft model needs its target; give both --target and --draft, omit both, or give --draft lookup alone",
        "draft",
    )


def require_model(user: str, target: str | None, draft: str | None) -> None:
    """Like `require_both`, but also refuses suffix lookup; `user` is the option that needs a draft model."""
    require_both(target, draft)
    if draft == LOOKUP:
        raise ConfigError(
            f"{user} needs a draft model, but --draft lookup uses no model; name a draft model with --draft", "draft"
        )
