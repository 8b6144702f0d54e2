"""Names of drafts that are no models, and checks of named models; for command lines, which are read without torch."""

from decoder.errors import ConfigError, require

LOOKUP = "lookup"
"""Name in place of a draft model: lookups in the text's own past draft (`decoder.draft.lookup`)."""


def require_both(target: str | None, draft: str | None) -> None:
    """Raises ConfigError where one model of a pair is named without the other."""
    require(
        target is None or draft is not None,
        "a target needs a draft; give --draft too: a model, or lookup, which drafts from the text's own past",
        "target",
    )
    require(
        target is not None or draft in (None, LOOKUP),
        "a draft model needs its target; give both --target and --draft, or neither, or --draft lookup",
        "draft",
    )


def require_model(user: str, target: str | None, draft: str | None) -> None:
    """The same check; also raises ConfigError where `user` needs a draft model and none is named."""
    require_both(target, draft)
    if draft == LOOKUP:
        raise ConfigError(f"{user} needs a draft model, which --draft lookup is not; name a model by --draft", "draft")
