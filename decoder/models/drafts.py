"""Finds the kind of a draft from its name, before models are loaded: a whole model, a drafting head, or suffix lookup.

Reads no weights.
"""

from decoder.errors import ConfigError
from decoder.models.checkpoints import display_name
from decoder.models.heads import head_shape
from decoder.models.names import LOOKUP, require_model


def is_model_free(draft: str | None) -> bool:
    """Whether the named draft is suffix lookup or a drafting head; None stands for the embedded draft.

    Raises ModelError for a head with an invalid configuration.
    """
    return draft == LOOKUP or (draft is not None and head_shape(draft) is not None)


def require_whole_draft(user: str, target: str | None, draft: str | None) -> None:
    """Raises ConfigError unless the draft is a whole model, which the option or method `user` needs."""
    require_model(user, target, draft)
    if draft is not None and (head := head_shape(draft)):
        raise ConfigError(
            f"{user} needs a whole model as draft, but {display_name(draft)} is a drafting head ({head.kind}); name a "
            "model with --draft"
        )
