"""Instructions: text before a sentence that says what its vector is for, as E5's ``query: ``, and
the tokenizer that puts it there.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from transformers import PreTrainedTokenizerBase

from lightning_cse.encoders.templates import padding_id
from lightning_cse.errors import EncoderError, did_you_mean

Use = Literal["default", "query", "document"]
"""What a sentence is embedded for: nothing in particular, to search, or to be found."""

USES: tuple[Use, ...] = ("default", "query", "document")

DOCUMENTS = ("document", "passage", "corpus")
"""The names of a document's prompt in sentence-transformers, the first that exists first."""


def complete(instructions: Mapping[str, str] | None) -> dict[str, str]:
    """Return the instruction of every use; none at all if each is empty.

    By default, a sentence gets the query's, as E5 has it for symmetric tasks, and a document none.
    Source: model card of E5 (Wang et al. 2022); sentence-transformers' ``prompts``, which have no
    default unless they name one.  Raises EncoderError for an unknown use.
    """
    texts = dict(instructions or {})
    for use, text in texts.items():
        if use not in USES:
            near = did_you_mean(use, USES)
            raise EncoderError(
                f"encoder.instructions: must be of {', '.join(USES)}, got {use!r}{near}"
            )
        if not isinstance(text, str):
            raise EncoderError(f"encoder.instructions.{use}: must be a text, got {text!r}")

    query = texts.get("query", "")
    complete_texts: dict[str, str] = {
        "default": texts.get("default", query),
        "query": query,
        "document": texts.get("document", ""),
    }

    return complete_texts if any(complete_texts.values()) else {}


def read_prompts(folder: Path) -> dict[str, str]:
    """Return the prompts of a sentence-transformers folder by name, the empty name for the default.

    Raises EncoderError if the file is damaged.
    """
    path = folder / "config_sentence_transformers.json"
    if not path.is_file():
        return {}

    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
        prompts = {str(name): text or "" for name, text in (settings.get("prompts") or {}).items()}
        default = settings.get("default_prompt_name")
        if default is not None:
            prompts[""] = prompts[default]
        if wrong := [text for text in prompts.values() if not isinstance(text, str)]:
            raise TypeError(f"{wrong[0]!r} is not a text")
    except (OSError, ValueError, LookupError, AttributeError, TypeError) as error:
        raise EncoderError(f"{path} has no readable prompts ({error!r}): restore it") from error

    return prompts


def read_instructions(folder: Path) -> dict[str, str] | None:
    """Return the instructions of a sentence-transformers folder, None without any.

    They are the texts that ``encode``, ``encode_query`` and ``encode_document`` put before a
    sentence.  Raises EncoderError if the file is damaged.
    """
    prompts = read_prompts(folder)
    instructions = {
        "default": prompts.get("", ""),
        "query": prompts.get("query", ""),
        "document": next((prompts[name] for name in DOCUMENTS if name in prompts), ""),
    }

    return instructions if any(instructions.values()) else None


def as_prompts(instructions: Mapping[str, str]) -> dict[str, Any]:
    """Return instructions as the arguments of a SentenceTransformer."""
    if not instructions:
        return {}

    default = instructions["default"]
    names = [name for name in ("query", "document") if instructions[name] == default]
    prompts = {name: instructions[name] for name in ("query", "document")}
    if default and not names:
        prompts["default"] = default

    name = next(iter(names), "default") if default else None

    return {"prompts": prompts, "default_prompt_name": name}


class Tokenizer:
    """A tokenizer as `lightning_cse.data` uses it: sentences to bare token ids, with a digest for
    the cache key.

    ``instruction`` is text put before every sentence.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, digest: str, instruction: str = ""
    ) -> None:
        self.tokenizer = tokenizer
        self.instruction = instruction
        self.digest = digest
        if instruction:
            self.digest = hashlib.sha256(f"{digest} {instruction}".encode()).hexdigest()

        self.pad_id = padding_id(tokenizer)

    def __call__(self, sentences: Sequence[str]) -> list[list[int]]:
        """Return the bare ids of each sentence: no special tokens, nothing truncated."""
        if not sentences:  # transformers raises an IndexError
            return []

        # verbose=False: the data module counts and reports sentences over the model's maximum.
        encoded = self.tokenizer(
            [self.instruction + sentence for sentence in sentences],
            add_special_tokens=False,
            return_attention_mask=False,
            truncation=False,
            verbose=False,
        )

        return list(encoded["input_ids"])

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of each list of ids, as the tokenizer joins word pieces."""
        texts = self.tokenizer.batch_decode([list(sentence) for sentence in ids])
        return [str(text) for text in texts]
