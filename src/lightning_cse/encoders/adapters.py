"""Adapters by peft in a backbone."""

from __future__ import annotations

import copy
import pkgutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedModel

from lightning_cse.errors import EncoderError

if TYPE_CHECKING:
    from peft import PeftConfig, PeftModel

REFUSED = frozenset(
    {"ADALORA", "ADAMSS", "ADAPTION_PROMPT", "CARTRIDGE", "POLY", "SHADOW", "XLORA"}
)
"""Types (peft's names) that need more than a backbone's weights: a loop that changes ranks,
inputs of their own, or virtual tokens, as all prompt learning.
"""


class Adapter:
    """An adapter in a backbone, and peft's model around both.

    The backbone keeps its class and is called as before. All of its own weights are frozen, except
    ``modules_to_save``. ``parameter_names`` are the parameters that are not those of the
    encoder's folder: the adapter's, and those that its initialisation changed (PiSSA).

    ``config`` is a peft config, or its class (``_target_``) and arguments. New weights are drawn
    from torch's initial seed, which is the run's. So they do not depend on what was drawn since,
    and are the same in every process. They are float32, whatever the backbone is.

    Source: peft's ``get_peft_model``.  Differs: it is the backbone that is called, so what peft
    does in the forward pass of its own model (virtual tokens, task ids) is refused.

    Raises EncoderError if peft is not installed, the config is not one of peft's or of a type that
    is refused, it matches no module, or it trains nothing.
    """

    def __init__(self, backbone: PreTrainedModel, config: PeftConfig | Mapping[str, Any]) -> None:
        peft = _peft()
        self.config = _checked(config)
        before = {id(weight): _fingerprint(weight) for weight in backbone.parameters()}
        try:
            with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
                # A name of transformers that peft 0.21 still uses.
                warnings.simplefilter("ignore", FutureWarning)
                torch.default_generator.manual_seed(torch.initial_seed())
                self.model: PeftModel = peft.get_peft_model(backbone, self.config)
        except (ValueError, TypeError, NotImplementedError) as error:
            raise EncoderError(f"encoder.adapter: {' '.join(str(error).split())}") from error

        weights = dict(backbone.named_parameters())
        if not any(weight.requires_grad for weight in weights.values()):
            raise EncoderError("encoder.adapter: trains nothing; leave out inference_mode")

        self.parameter_names = frozenset(
            name
            for name, weight in weights.items()
            if before.get(id(weight)) != _fingerprint(weight)
        )

    def __str__(self) -> str:
        """Return the type and, if it has one, the rank."""
        rank = getattr(self.config, "r", None)
        adapter_type = (
            "DORA" if getattr(self.config, "use_dora", False) else _adapter_type(self.config)
        )
        return adapter_type if rank is None else f"{adapter_type}, r={rank}"

    def merged(self) -> PreTrainedModel:
        """Return a copy of the backbone with the adapter merged into its weights."""
        tuner: Any = copy.deepcopy(self.model.base_model)
        try:
            merged: PreTrainedModel = tuner.merge_and_unload(safe_merge=True)
        except (ValueError, NotImplementedError, AttributeError) as error:
            raise EncoderError(
                f"encoder.adapter: {_adapter_type(self.config)} cannot be merged into the weights ({error}); use "
                "export --adapter"
            ) from error

        return merged

    def save(self, folder: Path, base: str) -> None:
        """Write what ``PeftModel.from_pretrained`` reads for an encoder, named ``base``."""
        self.config.base_model_name_or_path = base
        self.model.save_pretrained(str(folder))
        (folder / "README.md").unlink(missing_ok=True)


def _peft() -> Any:
    try:
        import peft
    except ImportError as missing:
        raise EncoderError(
            f"encoder.adapter needs peft: pip install 'lightning_cse[adapters]' ({missing})"
        ) from missing

    return peft


def _checked(config: PeftConfig | Mapping[str, Any]) -> PeftConfig:
    """Return a peft config of a type that can be trained here."""
    peft = _peft()
    if isinstance(config, Mapping):
        config = _built(config, peft.PeftConfig)

    if not isinstance(config, peft.PeftConfig):
        raise EncoderError(
            f"encoder.adapter: must be a config of peft such as {{_target_: peft.LoraConfig}}, "
            f"got {config!r}"
        )

    adapter_type = _adapter_type(config)
    has_inputs = config.is_prompt_learning or getattr(config, "alora_invocation_tokens", None)
    if has_inputs or adapter_type in REFUSED:
        raise EncoderError(
            f"encoder.adapter: {adapter_type} is not supported, since it adds tokens or inputs to a "
            "sentence, or changes while it is trained; choose peft.LoraConfig or another adapter of "
            "weights"
        )

    checked: PeftConfig = config

    return checked


def _adapter_type(config: PeftConfig) -> str:
    """Return peft's name of an adapter's type."""
    return str(config.peft_type).rpartition(".")[2]


def _built(node: Mapping[str, Any], base: type[Any]) -> PeftConfig:
    """Build the config that a run's file has as a class and arguments."""
    options = {key: value for key, value in node.items() if key not in ("_target_", "_convert_")}
    target = str(node.get("_target_"))
    try:
        config_class = pkgutil.resolve_name(target)
        if not issubclass(config_class, base):  # a run's file must not have any other code called
            raise TypeError("it is not a config of peft")

        built: PeftConfig = config_class(**options)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise EncoderError(f"encoder.adapter: {target} cannot be used ({error})") from error

    return built


def _fingerprint(weight: torch.Tensor) -> float:
    """Return a number that an initialisation which changes the weight changes, too."""
    return float(weight.detach().sum(dtype=torch.float64))
