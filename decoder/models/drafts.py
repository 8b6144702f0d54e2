"""Kind of a named draft before models are loaded: a whole model, an EAGLE-3 head, or lookups; and who needs a model.

Reads no weights.
"""

from decoder.errors import ConfigError
from decoder.models.checkpoints import display_name
from decoder.models.eagle3.config import head_shape
from decoder.models.names import LOOKUP, require_model


def is_model_free(draft: str | None) -> bool:
    """Whether what is named drafts without a whole model; None: the embedded one.

    Raises:
        ModelError: It is a head whose configuration is not understood.
    """
    return draft == LOOKUP or (draft is not None and head_shape(draft) is not None)


def require_whole_draft(user: str, target: str | None, draft: str | None) -> None:
    """Raises ConfigError where what cannot do without a whole draft model is given none; see `require_model`."""
    require_model(user, target, draft)
    if draft is not None and is_model_free(draft):
        raise ConfigError(
            f"{user} needs a whole model as draft, and {display_name(draft)} is an EAGLE-3 head; name a model by "
            "--draft"
        )
