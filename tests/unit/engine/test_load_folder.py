"""Folders of sentence-transformers, and our own exports, are read whole or refused."""

import json

import numpy as np
import pytest
import torch
from encoder_kinds import save_kind
from oracles import untrained
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from torch import nn

import lightning_cse
from lightning_cse.analysis.exporting import export
from lightning_cse.encoders import load_encoder, tiny_encoder
from lightning_cse.errors import ConfigError, EncoderError
from lightning_cse.models import DualModel, FolderModel, ImpScoreModel, PointModel

SENTENCES = [
    "The ferry leaves at noon.",
    "  outer   and inner\twhite space \n",
    "Is that [MASK] yours, or <mask>? [SEP] </s>",
    "",
    "salt " * 150 + "was dear then.",
]
MASKED = {"pooling": "prompt", "prompts": ["{} ; in short : {mask} , that is all ."]}
E5 = {"instructions": {"query": "query: ", "document": "passage: "}}
EXPORTS = [
    (PointModel, {"has_head": True}, {}, True),
    (PointModel, {"has_head": True}, {"pooling": "mean", **E5}, True),
    (PointModel, {}, MASKED, False),
    (PointModel, {}, {"pooling": "last_token"}, False),
    (DualModel, {"architecture": "cross"}, {}, False),
    (DualModel, {"architecture": "bi"}, {"pooling": "mean"}, False),
    (ImpScoreModel, {"dim": 8}, {"pooling": "mean"}, True),
]


def theirs(folder, **options):
    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    return model.encode(SENTENCES, show_progress_bar=False, **options)


def check(model, expected, **options):
    scale = np.linalg.norm(expected, axis=1, keepdims=True).clip(1e-12)
    assert np.abs((model.encode(SENTENCES, **options) - expected) / scale).max() < 1e-6


@pytest.mark.parametrize(("method", "options", "reading", "has_layers"), EXPORTS)
def test_an_export_is_read_whole(method, options, reading, has_layers, tmp_path):
    model = untrained(method, encoder=tiny_encoder(max_length=48, **reading), **options)
    export(model, tmp_path / "to")
    loaded = lightning_cse.load(tmp_path / "to", "cpu")
    assert isinstance(loaded.answers, FolderModel) == has_layers
    check(loaded, theirs(tmp_path / "to"))
    check(loaded, model.encode(SENTENCES))
    export(loaded, tmp_path / "again")
    check(lightning_cse.load(tmp_path / "again", "cpu"), model.encode(SENTENCES))


@pytest.mark.parametrize("pooling", ["prompt", "last_token", "mean"])
def test_an_export_of_a_causal_model(pooling, tmp_path):
    folder = save_kind("qwen2", tmp_path / "qwen2")
    encoder = load_encoder(name="x", source=str(folder), pooling=pooling, max_length=48)
    model = untrained(PointModel, encoder=encoder)
    export(model, tmp_path / "to")
    loaded = lightning_cse.load(tmp_path / "to", "cpu")
    check(loaded, theirs(tmp_path / "to"))
    check(loaded, model.encode(SENTENCES))


def save(folder, *layers, pooling="mean", **options):
    """Write a folder with sentence-transformers itself."""
    encoder = save_kind("bert", folder.parent / "bert")
    transformer = modules.Transformer(str(encoder), max_seq_length=24)
    parts = [transformer, modules.Pooling(transformer.get_embedding_dimension(), pooling), *layers]
    SentenceTransformer(modules=parts, device="cpu", **options).save_pretrained(str(folder))

    return folder


def dense(wide, narrow, activation, bias=True):
    torch.manual_seed(1)
    return modules.Dense(wide, narrow, bias=bias, activation_function=activation)


WIDTH = 16


@pytest.mark.parametrize("pooling", ["cls", "lasttoken", "max", "mean"])
@pytest.mark.parametrize(
    "layers",
    [
        (),
        (modules.Normalize(),),
        (dense(WIDTH, 8, nn.Tanh()), dense(8, 12, nn.Identity(), bias=False), modules.Normalize()),
        (modules.Normalize(), dense(WIDTH, 8, nn.GELU())),
    ],
    ids=["none", "normalize", "dense", "normalize_dense"],
)
def test_a_folder_of_theirs_is_read_whole(pooling, layers, tmp_path):
    folder = save(tmp_path / "theirs", *layers, pooling=pooling)
    check(lightning_cse.load(folder, "cpu"), theirs(folder))


def test_prompts_by_their_names(tmp_path):
    prompts = {"query": "query: ", "sts": "compare : "}
    folder = save(tmp_path / "theirs", prompts=prompts, default_prompt_name="sts")
    model = lightning_cse.load(folder, "cpu")
    check(model, theirs(folder))
    for name in prompts:
        check(model, theirs(folder, prompt_name=name), prompt_name=name)

    with pytest.raises(ConfigError, match=r"has no prompt 'stss' \(it has: .*query.*sts\)"):
        model.encode("a", prompt_name="stss")


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        ("2_Dense/config.json", {"use_residual": True}, "use_residual=True is not supported"),
        ("2_Dense/config.json", {"in_features": 31}, "takes vectors of 31 numbers, and gets 16"),
        ("2_Dense/config.json", {"out_features": 9}, "the weights are not those of its config"),
        ("2_Dense/config.json", {"activation_function": "os.system"}, "none of torch.nn"),
        ("2_Dense/config.json", {"activation_function": "torch.nn.Bilinear"}, "none of torch.nn"),
        ("2_Dense/config.json", {"other": 1}, "'other'"),
        ("2_Dense/config.json", {"module_input_name": "tokens"}, "module_input_name='tokens'"),
        ("1_Pooling/config.json", {"pooling_mode": ["cls", "mean"]}, "does not say how to pool"),
        ("1_Pooling/config.json", {"pooling_mode": "weightedmean"}, "does not say how to pool"),
        ("sentence_bert_config.json", {"do_lower_case": True}, "has do_lower_case=True"),
        ("sentence_bert_config.json", {"model_args": {"dtype": "float16"}}, "has dtype='float16'"),
        ("2_Dense/model.safetensors", None, "has no model.safetensors"),
        ("modules.json", None, "how it pools"),
    ],
)
def test_what_cannot_be_read_is_refused(file, changes, message, tmp_path):
    folder = save(tmp_path / "theirs", dense(WIDTH, 8, nn.Tanh()))
    path = folder / file
    if changes is None:
        path.unlink()
    else:
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    with pytest.raises(EncoderError, match=message):
        lightning_cse.load(folder, "cpu")


@pytest.mark.parametrize("name", ["LSTM", "CNN", "WordWeights", "Router"])
def test_other_modules_are_refused(name, tmp_path):
    folder = save(tmp_path / "theirs")
    parts = json.loads((folder / "modules.json").read_text())
    parts.append({"path": "2", "type": f"sentence_transformers.models.{name}"})
    (folder / "modules.json").write_text(json.dumps(parts))
    with pytest.raises(EncoderError, match=f"has the modules Transformer, Pooling, {name}"):
        lightning_cse.load(folder, "cpu")


def test_weights_of_many_words_are_refused(tmp_path):
    model = untrained(PointModel, encoder=tiny_encoder(max_length=48, **MASKED))
    export(model, tmp_path / "to")
    path = tmp_path / "to" / "1_WordWeights" / "model.safetensors"
    tensors = load_file(path)
    save_file({"emb_layer.weight": torch.ones_like(tensors["emb_layer.weight"])}, path)
    with pytest.raises(EncoderError, match="weights tokens"):
        lightning_cse.load(tmp_path / "to", "cpu")


def test_an_explicit_pooling_takes_the_bare_encoder(tmp_path, caplog):
    folder = save(tmp_path / "theirs", dense(WIDTH, 8, nn.Tanh()))
    caplog.set_level("INFO")
    model = lightning_cse.load(folder, "cpu", pooling="mean")
    assert model.encode("a").shape == (WIDTH,)
    assert "no layer behind its pooling (its folder: Dense)" in caplog.text


def test_a_training_does_not_drop_a_head(tmp_path):
    folder = save(tmp_path / "theirs", dense(WIDTH, 8, nn.Tanh()))
    with pytest.raises(EncoderError, match=r"Dense, which a training would drop: .*init_from"):
        load_encoder(name="x", source=str(folder), pooling="auto")


def test_digests_see_the_layers(tmp_path):
    folder = save(tmp_path / "theirs", dense(WIDTH, 8, nn.Tanh()))
    before = lightning_cse.load(folder, "cpu").digests
    path = folder / "2_Dense" / "config.json"
    path.write_text(path.read_text().replace("Tanh", "ReLU"))
    after = lightning_cse.load(folder, "cpu").digests
    assert before["layers"] != after["layers"]
    assert before["weights"] == after["weights"]
