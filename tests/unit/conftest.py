"""Models on disk, and data directories with few rows, for the tests of this folder."""

import json
from contextlib import ExitStack

import pytest
from llm_server import ChatServer
from oracles import save_tiny

from lightning_cse.data import corpora


@pytest.fixture(autouse=True)
def few_rows_will_do(monkeypatch):
    """Treat every data directory as one of samples: tests write a few rows under official names."""
    monkeypatch.setattr(corpora, "SAMPLE", ".")


@pytest.fixture
def speaking_encoder(tmp_path):
    """The tiny encoder as a sentence-transformers model whose files say mean pooling and 32
    tokens.
    """
    folder = save_tiny(tmp_path / "encoder")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 32}')
    modules = [
        {"type": f"sentence_transformers.models.{module}", "path": path}
        for module, path in (("Transformer", ""), ("Pooling", "1_Pooling"))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))

    return folder


@pytest.fixture
def serve():
    """Start chat servers that end with the test."""
    with ExitStack() as stack:
        yield lambda *arguments, **named: stack.enter_context(ChatServer(*arguments, **named))
