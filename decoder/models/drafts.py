"""Kind of a named draft before models are loaded: a whole model, an EAGLE-3 head, or lookups.

Reads no weights.
"""

from decoder.errors import ConfigError
from decoder.models.checkpoints import display_name
from decoder.models.eagle3.config import head_shape
from decoder.models.names import LOOKUP, require_model


def is_model_free(draft: str | None) -> bool:
    """Whether a named draft is no whole model: lookups or an EAGLE-3 head; None names the embedded model.

    Raises:
        ModelError: It is a head with an invalid configuration.
    """
    return draft == LOOKUP or (draft is not None and head_shape(draft) is not None)


def require_whole_draft(user: str, target: str | None, draft: str | None) -> None:
    """Raises ConfigError where `user`, which needs a whole draft model, has none; see `require_model`."""
    require_model(user, target, draft)
    if draft is not None and is_model_free(draft):
        raise ConfigError(
            f"{user} needs a whole model as draft, and {display_name(draft)} is an EAGLE-3 head; name a model by "
            "--draft"
        )
