"""A folder of sentence-transformers: its modules, how it pools, and its prompts."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from lightning_cse.encoders.find import MODULES
from lightning_cse.encoders.instructions import read_instructions, read_prompts
from lightning_cse.encoders.templates import Template
from lightning_cse.errors import EncoderError

POOLINGS = {
    "cls": "cls",
    "pooling_mode_cls_token": "cls",
    "lasttoken": "last_token",
    "pooling_mode_lasttoken": "last_token",
    "max": "max",
    "pooling_mode_max_tokens": "max",
    "mean": "mean",
    "pooling_mode_mean_tokens": "mean",
}
"""Our poolings by the names of sentence-transformers."""

SUPPORTED: Mapping[str, tuple[Any, ...]] = {
    "do_lower_case": (False,),
    "transformer_task": ("feature-extraction",),
    "module_output_name": ("token_embeddings",),
    "modality_config": (
        {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    ),
}
"""The values in ``sentence_bert_config.json`` that the vectors here are computed with."""

WITHOUT_EFFECT = frozenset(
    {"max_seq_length", "unpad_inputs", "add_pooling_layer", "attn_implementation", "padding_side"}
)
"""Keys there, and arguments of model and tokenizer, that are read elsewhere or change no vector."""


class Module(NamedTuple):
    """A module of ``modules.json``: its class without the Python module, and its folder."""

    name: str
    path: Path


@dataclass(frozen=True)
class SentenceTransformerFolder:
    """What the JSON files of a folder say.

    ``pooling`` is one of our names. ``word_weights`` are weights of tokens before the pooling, if
    any, and ``layers`` the modules behind it. ``prompts`` are texts by their names, and
    ``instructions`` those by use.
    """

    path: Path
    pooling: str
    word_weights: Module | None
    layers: tuple[Module, ...]
    prompts: dict[str, str]
    instructions: dict[str, str] | None

    def pooled_template(self, tokenizer: PreTrainedTokenizerBase) -> tuple[str, Template]:
        """Return our pooling, and the tokenizer's template with the place of the pooled token.

        Weights of tokens are `export`'s for a prompt: a single token has one, the prompt's mask.
        Raises EncoderError for any others.
        """
        template = Template.from_tokenizer(tokenizer)
        if self.word_weights is None:
            is_last = self.pooling == "last_token"
            return self.pooling, replace(template, pooled=1) if is_last else template

        weights = read_tensors(self.word_weights)["emb_layer.weight"].flatten()
        weighted = weights.nonzero().flatten().tolist()
        if self.pooling != "mean" or len(weighted) != 1 or template.suffix.count(*weighted) != 1:
            raise _unsupported(
                self.path, "weights tokens, which is read for the mask of a prompt alone"
            )

        mask_index = template.suffix.index(*weighted)

        return "prompt", replace(template, pooled=len(template.suffix) - mask_index)

    def digest(self) -> str | None:
        """Return the sha256 of the files of layers and weights; None without any."""
        modules = [*self.layers, *([self.word_weights] if self.word_weights else ())]
        if not modules:
            return None

        digest = hashlib.sha256()
        for name, path in modules:
            digest.update(name.encode())
            for file in ("config.json", "model.safetensors"):
                if (path / file).is_file():
                    digest.update((path / file).read_bytes())

        return digest.hexdigest()


def read_folder(folder: Path) -> SentenceTransformerFolder:
    """Read the JSON files of a sentence-transformers folder.

    Raises EncoderError if there are none, or if its vectors cannot be computed here.
    """
    path = folder / MODULES
    if not path.is_file():
        raise EncoderError(
            f"encoder.pooling: {folder} has no {MODULES} that says how it pools: choose cls or "
            "mean, last_token for a causal model"
        )

    try:
        modules = []
        for module in read_json(path):
            name = str(module["type"]).rpartition(".")[2]
            modules.append(Module(name, folder / module["path"]))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise EncoderError(f"{path} is damaged ({error!r}): restore it") from error

    _check_order(folder, [module.name for module in modules])
    if modules[0].path != folder:
        raise _unsupported(folder, f"has its Transformer in {modules[0].path}, not in itself")

    _check_transformer(folder)
    position = next(index for index, module in enumerate(modules) if module.name == "Pooling")
    pooling, includes_prompt = _read_pooling(modules[position].path / "config.json")
    prompts = read_prompts(folder)
    if not includes_prompt and any(prompts.values()):
        raise _unsupported(folder, "pools without the tokens of a prompt (include_prompt)")

    return SentenceTransformerFolder(
        folder,
        pooling,
        word_weights=modules[1] if position == 2 else None,
        layers=tuple(modules[position + 1 :]),
        prompts=prompts,
        instructions=read_instructions(folder),
    )


def _check_order(folder: Path, names: list[str]) -> None:
    before, pooling, behind = "Transformer", "Pooling", {"Dense", "Normalize"}
    start = 2 if names[1:2] == ["WordWeights"] else 1
    is_pooled = names[:1] == [before] and names[start : start + 1] == [pooling]
    if not is_pooled or not behind.issuperset(names[start + 1 :]):
        raise _unsupported(
            folder,
            f"has the modules {', '.join(names)}, and those read are Transformer and Pooling, then "
            "Dense and Normalize",
        )


def _check_transformer(folder: Path) -> None:
    """Raise EncoderError if a key of the transformer's file changes what tokens or states are."""
    path = transformer_config(folder)
    if path is None:
        return

    for key, value in _flat(read_json(path)):
        if value in (None, {}, *SUPPORTED.get(key, ())) or key in WITHOUT_EFFECT:
            continue

        raise _unsupported(folder, f"has {key}={value!r} in {path.name}")


def _flat(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the settings, with each of the arguments of model, tokenizer and config."""
    for key, value in settings.items():
        if key.endswith(("_args", "_kwargs")) and isinstance(value, dict):
            yield from value.items()
        else:
            yield key, value


def transformer_config(folder: Path) -> Path | None:
    """Return the file of the transformer's settings, which has the architecture in its name."""
    return next(iter(sorted(folder.glob("sentence_*_config.json"))), None)


def _read_pooling(path: Path) -> tuple[str, bool]:
    """Return our pooling, and whether it includes the tokens of a prompt."""
    try:
        config = read_json(path)
        modes = config.get("pooling_mode") or [
            key for key, value in config.items() if "pooling_mode_" in key and value
        ]
        (mode,) = [modes] if isinstance(modes, str) else modes
        return POOLINGS[mode], bool(config.get("include_prompt", True))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise EncoderError(
            f"{path} does not say how to pool, by {', '.join(list(POOLINGS)[::2])} alone "
            f"({error!r}): use sentence-transformers itself"
        ) from error


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def read_tensors(module: Module) -> dict[str, Tensor]:
    """Return the weights of a module; raise EncoderError if they are damaged, or a pickle."""
    path = module.path / "model.safetensors"
    if not path.is_file():
        raise EncoderError(
            f"{module.path} has no model.safetensors, and weights as pytorch_model.bin are not "
            "read, since they can run code: load and save the folder with sentence-transformers if "
            "you trust it"
        )

    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise EncoderError(f"{path} is damaged ({error}): restore it") from error

    return tensors


def _unsupported(folder: Path, reason: str) -> EncoderError:
    return EncoderError(
        f"{folder} {reason}: its vectors are those of sentence-transformers alone, so that nothing "
        "is loaded. An explicit pooling (mean, cls, ...) takes the bare encoder, another model"
    )
