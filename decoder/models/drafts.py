"""Kind of a draft by its name, before models are loaded: a whole model, an EAGLE-3 head, the target's MTP layer, or suffix
lookup.

Reads no weights.
"""

from decoder.errors import ConfigError
from decoder.models.checkpoints import display_name
from decoder.models.eagle3.config import head_shape
from decoder.models.names import LOOKUP, MTP, require_model

EAGLE3, OWN_LAYER = "an EAGLE-3 head", "the target's MTP layer"


def kind_of_head(draft: str | None) -> str:
    """Kind of the head of this name, in words; empty if the name is that of a whole model, or suffix lookup, or None.

    Raises:
        ModelError: The draft is an EAGLE-3 head with an invalid configuration.
    """
    if draft in (None, LOOKUP):
        return ""
    return OWN_LAYER if draft == MTP else EAGLE3 if head_shape(str(draft)) else ""


def is_model_free(draft: str | None) -> bool:
    """Whether the named draft is suffix lookup or a head, not a whole model; None names the embedded model.

    Raises:
        ModelError: See `kind_of_head`.
    """
    return draft == LOOKUP or bool(kind_of_head(draft))


def require_whole_draft(user: str, target: str | None, draft: str | None) -> None:
    """Raises ConfigError unless the draft is a whole model; `user` is the option or method that needs one."""
    require_model(user, target, draft)
    if kind := kind_of_head(draft):
        raise ConfigError(
            f"{user} needs a whole model as draft, and {display_name(str(draft))} is {kind}; name a model by --draft"
        )
