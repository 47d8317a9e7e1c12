"""What an architecture is and can do: a masked or a causal language model, its positions, its
dropout, its attention.
"""

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    AttentionInterface,
    AttentionMaskInterface,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from lightning_cse.errors import EncoderError

MODEL_TYPES = (
    "albert",
    "bert",
    "camembert",
    "distilbert",
    "electra",
    "gemma3_text",
    "llama",
    "mistral",
    "modernbert",
    "qwen2",
    "qwen3",
    "roberta",
    "xlm-roberta",
)
"""Backbones whose forward passes options on to attention, and takes ``inputs_embeds`` and
``position_ids``.
"""


def is_decoder(config: PreTrainedConfig) -> bool:
    """Whether an architecture is trained as a causal language model, and not as a masked one."""
    config_class = type(config)
    is_causal_model = config_class in MODEL_FOR_CAUSAL_LM_MAPPING
    return is_causal_model and config_class not in MODEL_FOR_MASKED_LM_MAPPING


def refusal(config: PreTrainedConfig) -> str | None:
    """Return why a model is no sentence encoder; None if it is one."""
    if config.is_encoder_decoder:
        return "is an encoder-decoder"
    if config.get_text_config() is not config:
        return "is not a text model"
    if is_decoder(config):
        return None
    if type(config) not in MODEL_FOR_MASKED_LM_MAPPING:
        return "is no language model, or has no text input"
    if getattr(config, "is_decoder", False):
        return "is a masked model set up as a decoder (is_decoder in its config.json)"

    return None


def has_segments(config: PreTrainedConfig) -> bool:
    """Whether an architecture reads segment ids."""
    return getattr(config, "type_vocab_size", 0) > 1


def embedding_layer(backbone: PreTrainedModel) -> nn.Module | None:
    """Return the layer whose result is the matrix of a sentence's embeddings, if any."""
    layer: nn.Module | None = getattr(backbone, "embeddings", None)
    return layer


def first_position(backbone: PreTrainedModel) -> int:
    """Return the position of the first token."""
    if is_decoder(backbone.config):
        return 0

    # Positions of RoBERTa and MPNet start after the padding id.
    return int(getattr(embedding_layer(backbone), "padding_idx", -1)) + 1


def position_limit(backbone: PreTrainedModel) -> int | None:
    """Return how many positions tokens can have; None without a limit."""
    limit = getattr(backbone.config, "max_position_embeddings", None)
    return None if limit is None else limit - first_position(backbone)


@torch.no_grad()
def is_causal(backbone: PreTrainedModel) -> bool:
    """Whether the state of a token is the same whatever token comes after it."""
    was_training = backbone.training
    backbone.eval()
    ids = torch.tensor([[0, 1], [0, 2]], device=backbone.device)
    before_1, before_2 = backbone(input_ids=ids).last_hidden_state[:, 0].float()
    backbone.train(was_training)

    return bool(torch.dist(before_1, before_2) <= 1e-4 * before_1.norm())


def set_dropout(config: PreTrainedConfig, p: float | None) -> None:
    """Set every dropout probability of a config, whatever keys its architecture has for them.

    None leaves them.
    """
    if p is None:
        return

    for key, value in config.to_dict().items():
        is_dropout = "dropout" in key or "_drop" in key
        if is_dropout and type(value) in (int, float):
            setattr(config, key, p)


def drops(module: nn.Module) -> bool:
    """Whether a module drops something; a number named dropout belongs to a functional one."""
    if isinstance(module, nn.Dropout):
        return module.p > 0

    for key, value in vars(module).items():
        if "dropout" in key and type(value) in (int, float) and value > 0:
            return True

    return False


def checkpoint_layers(backbone: PreTrainedModel) -> None:
    """Make the layers of a backbone drop their activations in training, and compute them again,
    under the same dropout masks, for the gradient; raise EncoderError if it cannot.
    """
    backbone.config.use_cache = False  # transformers would say that it cannot have both
    try:
        with warnings.catch_warnings():
            # The name that replaces it is not in all releases of transformers 5.
            warnings.simplefilter("ignore", FutureWarning)
            backbone.gradient_checkpointing_enable({"use_reentrant": False})
    except ValueError as error:
        raise EncoderError(
            f"encoder.gradient_checkpointing: {error} Use method.chunk_size instead"
        ) from error


def avoid_host_reads(backbone: PreTrainedModel) -> None:
    """Make the masks of a backbone's padded sentences without waiting for a GPU.

    transformers looks for a batch without padding, whose mask it can leave out, and reads the mask
    for that. `Passes` leaves it out itself.
    """
    if backbone.config.model_type in MODEL_TYPES:
        backbone.set_attn_implementation(_ATTENTION)
    elif backbone.config.model_type == "mpnet":
        backbone.register_forward_pre_hook(_mask_as_bias, with_kwargs=True)


_ATTENTION = "lightning_cse"


def padding_mask(**options: Any) -> Tensor | None:
    """Return transformers' mask, and never None where there is padding or none."""
    if options["attention_mask"] is not None:
        options |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}

    return sdpa_mask(**options)


AttentionInterface.register(_ATTENTION, sdpa_attention_forward)
AttentionMaskInterface.register(_ATTENTION, padding_mask)


def _mask_as_bias(
    backbone: Any, args: tuple[Any, ...], options: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Make MPNet's mask a bias of four dimensions, which transformers takes as it is."""
    mask = options.get("attention_mask")
    if mask is not None and mask.ndim == 2:
        bias = torch.zeros(mask.shape, dtype=backbone.dtype, device=mask.device)
        bias.masked_fill_(mask == 0, torch.finfo(bias.dtype).min)
        options["attention_mask"] = bias[:, None, None]

    return args, options
