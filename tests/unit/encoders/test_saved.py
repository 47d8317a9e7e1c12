"""What a sentence-transformers folder says about itself is followed, or refused with its name."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
import torch
from torch import nn

from lightning_cse.encoders import load_encoder, read_max_length, read_pooling
from lightning_cse.errors import EncoderError
from lightning_cse.tokens import Tokens

SENTENCES = ["A cat.", "The dog chased the cat across the yard while it rained on all of us.", "Hi"]
BEFORE_6 = "sentence_transformers.models."
SINCE_6 = "sentence_transformers.sentence_transformer.modules."


def write(folder: Path, **files: object) -> Path:
    """Write JSON files beside the backbone; ``a__b`` is the file ``b.json`` in the folder ``a``."""
    for name, content in files.items():
        path = folder / (name.replace("__", "/") + ".json")
        path.parent.mkdir(exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def modules(*names: str, prefix: str = BEFORE_6) -> list[dict[str, object]]:
    return [
        {"idx": k, "name": str(k), "path": f"{k}_{name}" if k else "", "type": prefix + name}
        for k, name in enumerate(names)
    ]


PLAIN = modules("Transformer", "Pooling")
CLS = {"word_embedding_dimension": 16, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}


@pytest.mark.parametrize(
    ("pooling", "prefix", "want"),
    [
        (CLS, BEFORE_6, "cls"),
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, BEFORE_6, "mean"),
        ({"embedding_dimension": 16, "pooling_mode": "mean", "include_prompt": True}, SINCE_6, "mean"),
        ({"pooling_mode": ["cls"]}, SINCE_6, "cls"),
    ],
)
def test_the_folders_own_pooling(bert_folder: Path, pooling: object, prefix: str, want: str) -> None:
    write(bert_folder, modules=modules("Transformer", "Pooling", prefix=prefix), **{"1_Pooling__config": pooling})
    assert read_pooling(bert_folder) == want
    assert load_encoder(name="x", source=str(bert_folder), pooling="auto", max_length=16).pooling == want


def test_a_folder_of_another_kind(bert_folder: Path) -> None:
    assert read_pooling(bert_folder) is None
    assert read_max_length(bert_folder) is None
    choices = r"choose one of \['cls', .*'mean', 'prompt'\] in place of auto"
    with pytest.raises(EncoderError, match=rf"encoder\.pooling: {bert_folder} has no modules\.json .*{choices}"):
        load_encoder(name="x", source=str(bert_folder), pooling="auto", max_length=16)


def test_explicit_pooling_wins(bert_folder: Path) -> None:
    write(bert_folder, modules=modules("Transformer", "Pooling", "Dense"), **{"1_Pooling__config": CLS})
    assert load_encoder(name="x", source=str(bert_folder), pooling="mean", max_length=16).pooling == "mean"


def test_a_normalize_module_is_noted(bert_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(bert_folder, modules=modules("Transformer", "Pooling", "Normalize"), **{"1_Pooling__config": CLS})
    with caplog.at_level(logging.INFO, "lightning_cse"):
        assert read_pooling(bert_folder) == "cls"
    assert "scales its vectors to length one, which is left out here: no cosine changes" in caplog.text


@pytest.mark.parametrize("folder", ["package", "saved_again"])
@torch.no_grad()
def test_minilm_equals_sentence_transformers(minilm_folder: Path, tmp_path: Path, folder: str) -> None:
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(minilm_folder), device="cpu")
    if folder == "saved_again":  # in the layout of the version installed
        theirs.save(str(tmp_path / "saved"))
        minilm_folder = tmp_path / "saved"
    encoder = load_encoder(name="m", source=str(minilm_folder), pooling="auto", max_length="auto").eval()
    assert (encoder.pooling, encoder.max_length) == ("mean", 256)
    sentences = [*SENTENCES, "a very long walk " * 100]
    (got,) = encoder([(Tokens.pad(encoder.tokenizer(sentences)), encoder.template())])
    want = theirs.encode(sentences, convert_to_tensor=True)
    torch.testing.assert_close(nn.functional.normalize(got), nn.functional.normalize(want), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_hand_made_folder_equals_the_backbone(bert_folder: Path) -> None:
    write(bert_folder, modules=PLAIN, sentence_bert_config={"max_seq_length": 9}, **{"1_Pooling__config": CLS})
    encoder = load_encoder(name="x", source=str(bert_folder), pooling="auto", max_length="auto").eval()
    assert (encoder.pooling, encoder.max_length) == ("cls", 9)
    (got,) = encoder([(Tokens.pad(encoder.tokenizer(SENTENCES)), encoder.template())])
    for vector, sentence in zip(got, SENTENCES, strict=True):
        ids = encoder.tokenizer.tokenizer(sentence, truncation=True, max_length=9, return_tensors="pt")
        want = encoder.backbone(**ids).last_hidden_state[0, 0]
        torch.testing.assert_close(vector, want, atol=1e-5, rtol=1e-5)


# The longest sequence ------------------------------------------------------------------------------------------------


def limit(folder: Path, length: int) -> None:
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_max_length": length}))


@pytest.mark.parametrize(("tokenizer", "want"), [(24, 24), (512, 32), (int(1e30), 32)])
def test_without_a_length_what_tokenizer_and_backbone_allow(bert_folder: Path, tokenizer: int, want: int) -> None:
    limit(bert_folder, tokenizer)
    assert load_encoder(name="x", source=str(bert_folder), max_length="auto").max_length == want


def test_two_of_robertas_positions_are_never_used(roberta_folder: Path) -> None:
    assert load_encoder(name="x", source=str(roberta_folder), max_length="auto").max_length == 64


@pytest.mark.parametrize("length", [0, -1, "64", 3.5, True])
def test_a_length_that_is_none(bert_folder: Path, length: object) -> None:
    write(bert_folder, sentence_bert_config={"max_seq_length": length})
    with pytest.raises(EncoderError, match=r"sentence_bert_config\.json: max_seq_length is .*, not a positive number"):
        load_encoder(name="x", source=str(bert_folder), max_length="auto")


def test_a_length_beyond_the_positions(bert_folder: Path) -> None:
    write(bert_folder, sentence_bert_config={"max_seq_length": 64})
    with pytest.raises(EncoderError, match="max_length: 64 is more than the 32 of x"):
        load_encoder(name="x", source=str(bert_folder), max_length="auto")


# What cannot be followed ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pooling", "told"),
    [
        ({"pooling_mode_max_tokens": True}, r"pools by \['max'\]"),
        (CLS | {"pooling_mode_mean_tokens": True}, r"pools by \['cls', 'mean'\]"),
        ({"pooling_mode": ["mean", "max"]}, r"pools by \['mean', 'max'\]"),
        ({"pooling_mode": "lasttoken"}, r"pools by \['lasttoken'\]"),
        ({}, r"pools by \[\]"),
        ({"pooling_mode": None}, "pools by None"),
        ([], "is not a JSON object"),
        ("{", "cannot be read"),
    ],
)
def test_poolings_there_are_none_of_here(bert_folder: Path, pooling: object, told: str) -> None:
    write(bert_folder, modules=PLAIN, **{"1_Pooling__config": pooling})
    with pytest.raises(EncoderError, match=rf"1_Pooling/config\.json {told}"):
        read_pooling(bert_folder)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (
            modules("Transformer", "Pooling", "Dense"),
            r"a module sentence_transformers\.models\.Dense, which is not appl",
        ),
        (modules("Transformer", "LSTM", "Pooling"), r"a module sentence_transformers\.models\.LSTM"),
        (modules("Transformer"), "has no module Pooling: set encoder.pooling"),
        (PLAIN, r"1_Pooling/config\.json is missing, which says how the model pools"),
        ({}, "is not a list of modules with a type each"),
        ([{"name": "0"}], "is not a list of modules with a type each"),
        ("[", "cannot be read"),
    ],
)
def test_modules_that_are_not_applied(bert_folder: Path, content: object, told: str) -> None:
    if content != PLAIN:
        write(bert_folder, **{"1_Pooling__config": CLS})
    write(bert_folder, modules=content)
    with pytest.raises(EncoderError, match=told):
        load_encoder(name="x", source=str(bert_folder), pooling="auto", max_length=16)


@pytest.mark.parametrize(("name", "refused"), [(None, False), ("query", True)])
def test_a_prompt_before_every_sentence(bert_folder: Path, name: str | None, refused: bool) -> None:
    config = {"prompts": {"query": "query: "}, "default_prompt_name": name}
    write(bert_folder, modules=PLAIN, config_sentence_transformers=config, **{"1_Pooling__config": CLS})
    if not refused:
        assert read_pooling(bert_folder) == "cls"
        return
    with pytest.raises(EncoderError, match="puts the prompt 'query' before every sentence, which is not done here"):
        read_pooling(bert_folder)
