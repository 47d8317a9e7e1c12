"""Faster passes on a CPU: packed sequences, attention in windows, dropout with cheaper bits.

An encoder imports this room at its first pass on a CPU, and calls `prepare` once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from lightning_cse.encoders.architecture import MODEL_TYPES
from lightning_cse.encoders.cpu.attention import WINDOW_ATTENTION, FastOutput
from lightning_cse.encoders.cpu.dropout import FastDropout
from lightning_cse.encoders.cpu.passes import PackedPasses, PaddedPasses
from lightning_cse.encoders.passes import Passes

Replacements = Mapping[str, Callable[[Any], nn.Module]]
"""What takes the place of a module, by the name of its class."""

DROPOUT: Replacements = {"Dropout": lambda dropout: FastDropout(dropout.p, dropout.inplace)}

OUTPUTS: Replacements = dict.fromkeys(
    (
        "BertOutput",
        "BertSelfOutput",
        "CamembertOutput",
        "CamembertSelfOutput",
        "ElectraOutput",
        "ElectraSelfOutput",
        "MPNetOutput",
        "RobertaOutput",
        "RobertaSelfOutput",
        "XLMRobertaOutput",
        "XLMRobertaSelfOutput",
    ),
    FastOutput,
)


def prepare(backbone: PreTrainedModel) -> type[Passes]:
    """Replace modules of a backbone by faster ones with the same parameters, and return the passes
    that it can make; on another device, they compute what the replaced ones did.
    """
    replace_modules(backbone, DROPOUT)
    model_type = backbone.config.model_type
    if model_type == "mpnet":
        from lightning_cse.encoders.cpu import mpnet  # imports transformers' own module

        replace_modules(backbone, mpnet.ATTENTION)
        mpnet.accept_windows(backbone)
    elif model_type in MODEL_TYPES:
        backbone.set_attn_implementation(WINDOW_ATTENTION)
    else:
        return PaddedPasses

    replace_modules(backbone, OUTPUTS)

    return PackedPasses


def replace_modules(root: nn.Module, replacements: Replacements) -> None:
    """Replace each module under ``root`` whose class has one of these names.

    A replacement is built from the module, and takes its parameters and its place; forward hooks on
    the module are lost.
    """
    for name, module in list(root.named_children()):
        build = replacements.get(type(module).__name__)
        if build is not None:
            replacement = build(module)
            replacement.training = module.training
            setattr(root, name, replacement)

        replace_modules(getattr(root, name), replacements)
