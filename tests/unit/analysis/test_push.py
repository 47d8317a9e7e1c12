"""The hub's own client uploads an exported folder to a server on this machine."""

import base64
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import huggingface_hub
import pytest

from lightning_cse.export import main

COMMIT = "0123456789abcdef" * 2 + "01234567"
REPO = "lab/tiny"


class Hub(BaseHTTPRequestHandler):
    """The part of the hub that an upload of a folder asks, with each file inside the commit."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        """Create the repository, say how files come, or take them."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.tokens.add(self.headers["Authorization"])
        if self.path == "/api/repos/create":
            self.server.created = json.loads(body)
            self.answer({"url": f"{self.server.address}/{REPO}"})
        elif self.path == f"/api/models/{REPO}/preupload/main":
            files = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                for file in json.loads(body)["files"]
            ]
            self.answer({"files": files})
        elif self.path == f"/api/models/{REPO}/commit/main":
            for operation in map(json.loads, body.splitlines()):
                if operation["key"] == "file":
                    file = operation["value"]
                    self.server.files[file["path"]] = base64.b64decode(file["content"])

            url = f"{self.server.address}/{REPO}/commit/{COMMIT}"
            self.answer({"commitUrl": url, "commitOid": COMMIT, "success": True})
        else:  # the card's header is checked
            self.answer({})

    def do_GET(self):
        """Describe the repository."""
        self.answer({"id": REPO, "sha": COMMIT, "private": self.server.private, "siblings": []})

    def answer(self, content):
        """Send JSON."""
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Keep the output of the test clean."""


@pytest.fixture
def hub(monkeypatch):
    """Return a function that starts the server, as the hub of this process, for a block."""

    @contextmanager
    def started(*, private):
        server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
        server.address = f"http://127.0.0.1:{server.server_port}"
        server.files = {}
        server.tokens = set()
        server.private = private
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", server.address)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_TOKEN", "hf_test")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
            server.server_close()

    return started


@pytest.mark.parametrize("options", [[], ["--private"]])
def test_every_file_arrives(options, hub, tmp_path, capsys):
    folder = tmp_path / "folder"
    arguments = ["--model", "tiny", "--to", str(folder), "--push", REPO]
    with hub(private=bool(options)) as server:
        assert main([*arguments, *options]) == 0

    assert f"{server.address}/{REPO}/commit/{COMMIT}" in capsys.readouterr().out
    written = [path for path in folder.rglob("*") if path.is_file()]
    assert server.files == {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in written
    }
    assert {"README.md", "model.safetensors", "modules.json"} <= server.files.keys()
    assert server.tokens == {"Bearer hf_test"}
    visibility = {"visibility": "private"} if options else {}
    assert server.created == {"name": "tiny", "organization": "lab", **visibility}
    assert f'SentenceTransformer("{REPO}")' in server.files["README.md"].decode()


def test_nothing_private_goes_to_a_public_repository(hub, tmp_path, capsys):
    arguments = ["--model", "tiny", "--to", str(tmp_path / "folder"), "--push", REPO]
    with hub(private=False) as server:
        assert main([*arguments, "--private"]) == 2

    assert "is public already" in capsys.readouterr().err
    assert server.files == {}
