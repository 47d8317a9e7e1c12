"""Settings as they may be shown to others."""

from __future__ import annotations

from pathlib import Path

from lightning_cse.config.secrets import without_secrets


def test_strings_under_keys_that_look_like_secrets_are_left_out() -> None:
    config = {
        "api_key": "x",
        "tokens": ["x", "y"],
        "max_tokens": 5,
        "hfToken": "x",
        "Password": "x",
        "client_secret": "x",
        "token": {"value": "kept, for its key is another"},
        "tokenizer": "bert",
        "rows": [{"key": "x", "n": None}],
        "path": Path("a"),
    }
    assert without_secrets(config) == {
        "max_tokens": 5,
        "token": {"value": "kept, for its key is another"},
        "tokenizer": "bert",
        "rows": [{"n": None}],
        "path": "a",
    }
    assert config["api_key"] == "x"  # the run goes on with its own
