"""What an architecture is and can do: a masked or a causal language model, its positions, its
direction of attention.
"""

import torch
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    PreTrainedConfig,
    PreTrainedModel,
)

from lightning_cse.errors import EncoderError


def is_decoder(config: PreTrainedConfig) -> bool:
    """Whether an architecture is trained as a causal language model, and not as a masked one."""
    kind = type(config)
    return kind in MODEL_FOR_CAUSAL_LM_MAPPING and kind not in MODEL_FOR_MASKED_LM_MAPPING


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


def positions(backbone: PreTrainedModel) -> tuple[int, int | None]:
    """Return the position of the first token, and how many positions tokens can have.

    None without a limit.
    """
    # Positions of RoBERTa and MPNet start after the padding id, so two of their 514 are never used.
    own = getattr(getattr(backbone, "embeddings", None), "padding_idx", -1)
    first = 0 if is_decoder(backbone.config) else int(own) + 1
    limit = getattr(backbone.config, "max_position_embeddings", None)

    return first, None if limit is None else limit - first


@torch.no_grad()
def is_causal(backbone: PreTrainedModel) -> bool:
    """Whether the state of a token is the same whatever token comes after it."""
    was_training = backbone.training
    backbone.eval()
    ids = torch.tensor([[0, 1], [0, 2]], device=backbone.device)
    one, other = backbone(input_ids=ids).last_hidden_state[:, 0].float()
    backbone.train(was_training)

    return bool(torch.dist(one, other) <= 1e-4 * one.norm())


def attend_both_ways(backbone: PreTrainedModel, name: str) -> None:
    """Remove the causal mask of a decoder, so that a token sees all tokens of its sentence.

    Source: LLM2Vec (BehnamGhader et al. 2024), section 2.1, the first of three steps.  Differs:
    nothing.  Raises EncoderError if the architecture does not allow it.
    """
    kind = backbone.config.model_type
    if not is_decoder(backbone.config):
        raise EncoderError(
            f"encoder.bidirectional: the {kind} {name} is bidirectional already; leave it out"
        )

    backbone.config.is_causal = False  # masks of padded sentences
    for module in backbone.modules():
        if getattr(module, "is_causal", False):
            vars(module)["is_causal"] = False  # attention without a mask

    if is_causal(backbone):
        raise EncoderError(
            f"encoder.bidirectional: the attention of {kind} ({name}) stays causal in transformers; "
            "leave it out, or choose another architecture (qwen2, qwen3, llama, mistral, gemma3)"
        )
