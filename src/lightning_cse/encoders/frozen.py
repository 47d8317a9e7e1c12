"""State dicts without frozen parameters: a checkpoint has only what is trained."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from torch import nn


def frozen_names(module: nn.Module, saved: Collection[str] = ()) -> list[str]:
    """Return the names of frozen parameters, except those that are ``saved`` all the same."""
    return [
        name
        for name, weight in module.named_parameters(remove_duplicate=False)
        if not weight.requires_grad and name not in saved
    ]


def leave_out_frozen(module: nn.Module) -> None:
    """Leave the parameters ``module.frozen`` out of state dicts, and do without them in loading.

    They are those of the encoder's folder, and can be far larger than what is trained.
    """
    module.register_state_dict_post_hook(_without_frozen)
    module.register_load_state_dict_pre_hook(_with_frozen)


def _without_frozen(module: Any, state: dict[str, Any], prefix: str, _: Any) -> None:
    for name in module.frozen:
        state.pop(f"{prefix}{name}", None)


def _with_frozen(module: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Add the module's frozen parameters to a state that lacks them."""
    for name in module.frozen:
        state.setdefault(f"{prefix}{name}", module.get_parameter(name).detach())
