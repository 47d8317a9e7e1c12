"""The user's error behind the wrappers that OmegaConf and Hydra put around it."""

from __future__ import annotations

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from lightning_cse.errors import LightningCSEError


def user_error(error: BaseException | None) -> LightningCSEError | None:
    """Return the user's error that ``error`` is or wraps, or None.

    OmegaConf wraps what a resolver raises and `hydra.utils.instantiate` what a constructor raises; only these wrappers
    are looked through. A user's error that some other exception merely followed does not count.

    Example:
        >>> from lightning_cse.errors import DataError
        >>> user_error(DataError("no such corpus"))
        DataError('no such corpus')
        >>> user_error(ValueError("a bug")) is None
        True
    """
    while error is not None:
        if isinstance(error, LightningCSEError):
            return error
        if not isinstance(error, (OmegaConfBaseException, HydraException)):
            return None
        error = error.__cause__ or error.__context__
    return None
