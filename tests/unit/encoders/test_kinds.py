"""Encoders of the kinds that people train: equal to transformers' own values, packed and padded, and trained."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from encoder_kinds import KINDS, save_kind
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from small_runs import LITTLE

from lightning_cse.analysis.exporting import export
from lightning_cse.encoders import SentenceEncoder, load_encoder
from lightning_cse.encoders.load import digests
from lightning_cse.encoders.packing import MODEL_TYPES
from lightning_cse.engine.load import load as load_model
from lightning_cse.errors import EncoderError
from lightning_cse.losses import DualContrastive, GaussianContrastive, InfoNCE
from lightning_cse.methods import DualCSE, GaussCSE, Method, Schedule, SimCSE, UnsupervisedSimCSE
from lightning_cse.runs import Run
from lightning_cse.tokens import Tokens

SENTENCES = [
    "The ferry leaves at noon.",
    "",
    "Nobody had told the new teacher that the bell rings twice, once for the children and once for everyone else.",
    "Is that yours?",
    "Über 🙃 naïveté.",
]
Folders = Callable[[str], Path]


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Where an encoder of a kind is saved, under the kind's name."""
    made: dict[str, Path] = {}

    def folder(name: str) -> Path:
        if name not in made:
            made[name] = save_kind(name, tmp_path_factory.mktemp("kinds") / name)
        return made[name]

    return folder


def load(folder: Path, **options: Any) -> SentenceEncoder:
    given = {
        "name": folder.name,
        "source": str(folder),
        "pooling": "mean",
        "max_length": 64,
        "dropout": 0.0,
    }
    return load_encoder(**given | options)


def padded(encoder: SentenceEncoder) -> SentenceEncoder:
    """Send an encoder down the way of a GPU."""
    encoder._packed = encoder._padded  # type: ignore[method-assign]
    return encoder


@pytest.mark.parametrize("second", [None, "explicit"])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("name", KINDS)
@torch.no_grad()
def test_packed_and_padded_equal_transformers_own(
    name: str, pooling: str, second: str | None, folders: Folders
) -> None:
    folder = folders(name)
    tokenizer, model = (
        hf.AutoTokenizer.from_pretrained(folder),
        hf.AutoModel.from_pretrained(folder).eval(),
    )
    texts = [SENTENCES] if second is None else [SENTENCES, [second] * len(SENTENCES)]
    inputs = tokenizer(*texts, padding=True, return_tensors="pt")
    inputs = {
        key: value
        for key, value in inputs.items()
        if key != "token_type_ids" or KINDS[name].segments
    }
    hidden, mask = model(**inputs).last_hidden_state, inputs["attention_mask"][:, :, None]
    want = hidden[:, 0] if pooling == "cls" else (hidden * mask).sum(1) / mask.sum(1)
    for encoder in (
        load(folder, pooling=pooling).eval(),
        padded(load(folder, pooling=pooling).eval()),
    ):
        tokens = Tokens.pad(encoder.tokenizer(SENTENCES))
        (got,) = encoder([(tokens, encoder.template(second))])
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)


RUNS = {
    "bert": ("ngcse_wiki_dropout", "prompt", ("encoder.denoise=true",)),
    "roberta": ("ngcse_wiki_dropout", "prompt", ()),
    "mpnet": ("dualcse_bi", "mean", ()),
    "distilbert": ("dualcse_cross", "cls", ()),
    "electra": ("gausscse", "mean", ()),
    "deberta-v3": ("ngcse_wiki_dropout", "prompt", ()),
    "modernbert": ("simcse_unsup", "cls", ("encoder.dropout=0.1",)),
    "xlm-roberta": ("dualcse_cross", "mean", ()),
}
COMMON: dict[str, Any] = {"optimizer": partial(torch.optim.AdamW, lr=1e-3), "schedule": Schedule()}
METHODS: dict[str, tuple[Callable[[SentenceEncoder], Method], dict[str, Any]]] = {
    "simcse": (lambda encoder: SimCSE(encoder, InfoNCE(), **COMMON), {}),
    "simcse_unsup": (
        lambda encoder: UnsupervisedSimCSE(encoder, InfoNCE(), **COMMON),
        {"pooling": "cls"},
    ),
    "simcse_prompt": (lambda encoder: SimCSE(encoder, InfoNCE(), **COMMON), {"pooling": "prompt"}),
    "dualcse_cross": (
        lambda encoder: DualCSE(encoder, DualContrastive(), **COMMON),
        {"pooling": "cls"},
    ),
    "dualcse_bi": (
        lambda encoder: DualCSE(encoder, DualContrastive(), architecture="bi", **COMMON),
        {},
    ),
    "gausscse": (
        lambda encoder: GaussCSE(encoder, GaussianContrastive(), **COMMON),
        {"pooling": "cls"},
    ),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", RUNS)
def test_steps_of_training_are_those_of_padded_sentences(
    name: str, method: str, folders: Folders
) -> None:
    make, options = METHODS[method]
    losses = []
    for change in (lambda encoder: encoder, padded):
        torch.manual_seed(0)
        trained = make(change(load(folders(name), **options))).train()
        ids = trained.model.encoder.tokenizer(SENTENCES)
        roles = {role: Tokens.pad(ids[k:] + ids[:k]) for k, role in enumerate(trained.roles)}
        optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-3)
        for _ in range(2):
            optimizer.zero_grad()
            loss = trained.training_step({"roles": roles, "index": torch.arange(len(ids))}, 0)[
                "loss"
            ]
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        unused = [key for key, p in trained.named_parameters() if p.grad is None]
        assert unused == [], "every parameter is in the graph"
    assert losses[:2] == pytest.approx(losses[2:], rel=1e-4)
    assert losses[0] != losses[1]


@pytest.mark.parametrize("name", RUNS)
def test_trained_recorded_loaded_and_exported(
    name: str,
    folders: Folders,
    run_tiny: Callable[..., Run],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    experiment, pooling, more = RUNS[name]
    given = (
        f"encoder={folders(name)}",
        f"encoder.pooling={pooling}",
        "encoder.max_length=64",
        *more,
    )
    little = [override for override in LITTLE if not override.startswith("encoder.")]
    with caplog.at_level("INFO", "lightning_cse"):
        run = run_tiny(
            tmp_path, f"+experiment={experiment}", "trainer.precision=32-true", *little, *given
        )
    record = run.read()
    assert record["encoder"] == {"name": name, **digests(folders(name))}
    has_hint = (
        "has no segment ids: the words explicit and implicit are set apart by a separator alone"
        in caplog.text
    )
    assert has_hint == (experiment == "dualcse_cross" and not KINDS[name].segments)
    model = load_model(run.path)
    start = load_file(folders(name) / "model.safetensors")
    assert any(
        not torch.equal(p, start[key])
        for key, p in model.encoder.backbone.state_dict().items()
        if key in start
    )
    if "encoder.denoise=true" not in more:
        export(model, tmp_path / "made")
        vectors = SentenceTransformer(str(tmp_path / "made"), device="cpu").encode(
            SENTENCES, convert_to_tensor=True
        )
        want = next(iter(model.answers.embed(SENTENCES).views().values()))
        torch.testing.assert_close(vectors, want, atol=1e-5, rtol=1e-4)


def test_what_is_packed_and_where_positions_can_be_set(folders: Folders) -> None:
    kinds = {name: kind.config.model_type for name, kind in KINDS.items()}
    assert {*kinds.values()} - {*MODEL_TYPES} == {"mpnet", "deberta-v2"}
    assert {*MODEL_TYPES} <= {*kinds.values()}, "each is tested"
    with pytest.raises(
        EncoderError, match=r"positions of mpnet cannot be set, only those of albert, bert, "
    ):
        load(folders("mpnet"), pooling="prompt", denoise=True)


def edited(folder: Path, file: str, **changes: Any) -> None:
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("name", ["bert", "mpnet"])
def test_a_tokenizer_without_special_tokens(name: str, tmp_path: Path) -> None:
    folder = save_kind(name, tmp_path / name)
    tokenizer = hf.PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer.save_pretrained(folder)
    edited(folder, "tokenizer.json", post_processor=None)
    edited(
        folder, "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast", mask_token=None
    )
    with pytest.raises(
        EncoderError,
        match=rf"the tokenizer of {name} puts no \[CLS\] before a sentence; choose mean",
    ):
        load(folder, pooling="cls")
    with pytest.raises(
        EncoderError, match=r"encoder\.pooling: the tokenizer .* has no mask token for a prompt"
    ):
        load(folder, pooling="prompt")
    encoder = load(folder).eval()
    message = rf"{name} writes no special token between a sentence and 'explicit'; choose method\.architecture=bi"
    with pytest.raises(EncoderError, match=message):
        encoder.template("explicit")
    (vectors,) = encoder([(Tokens.pad(encoder.tokenizer(["a cat", ""])), encoder.template())])
    assert torch.isfinite(vectors).all()


def test_a_tokenizer_with_segments_for_a_model_without(folders: Folders, tmp_path: Path) -> None:
    edited(save_kind("roberta", tmp_path), "config.json", pad_token_id=0)
    hf.AutoTokenizer.from_pretrained(folders("bert")).save_pretrained(tmp_path)
    model = DualCSE(load(tmp_path), DualContrastive(), **COMMON).model.eval()
    assert not any(model.explicit_template.suffix_types)
    loaded = replace(load_model(str(tmp_path), pooling="mean"), answers=model)
    assert export(loaded, tmp_path / "made").startswith(
        "PointModel, view explicit: 64 vectors within"
    )
