"""The digest of a method's code: what changes it, and what does not."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from lightning_cse.runs import code

FILES = {
    "similarity.py": "VERSION = 1\n",
    "tokens.py": "VERSION = 1\n",
    "losses/info_nce.py": "class InfoNCE(Module):\n    weights = [0, None, False, '']\n",
    "losses/dual.py": "from lightning_cse.losses.info_nce import InfoNCE\nclass InfoNCEOther: ...\n",
    "methods/simcse.py": "class SimCSE(Method): ...\n",
}
METHOD = {
    "_target_": "lightning_cse.methods.SimCSE",
    "optimizer": {"_target_": "torch.optim.AdamW"},
    "loss": {"_target_": "lightning_cse.losses.info_nce.InfoNCE"},
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(code, "_PACKAGE", tmp_path)
    yield tmp_path
    code._digest.cache_clear()


def digest(method: dict[str, object] = METHOD) -> str | None:
    code._digest.cache_clear()
    return code.method_code(method)


@pytest.mark.parametrize(
    ("name", "then", "now", "changes"),
    [
        ("losses/info_nce.py", "0,", "1,", True),
        ("losses/info_nce.py", "0,", "False,", True),
        ("losses/info_nce.py", "None", "''", True),
        ("methods/simcse.py", "...", "x = 1", True),
        ("similarity.py", "1", "2", True),
        ("tokens.py", "1", "2", False),
        ("losses/dual.py", "...", "x = 1", False),
        ("methods/simcse.py", "...", '"""Docstring."""; ...  # a comment', False),
        (
            "losses/info_nce.py",
            "[0, None, False, '']",
            '[\n        0, None, False, "",\n    ]',
            False,
        ),
    ],
)
def test_code_of_the_method_changes_it_and_comments_do_not(
    package: Path, name: str, then: str, now: str, changes: bool
) -> None:
    before = digest()
    assert then in FILES[name]
    (package / name).write_text(FILES[name].replace(then, now))
    assert (digest() != before) == changes


def test_another_class_has_another_digest(package: Path) -> None:
    other = METHOD | {"loss": {"_target_": "lightning_cse.losses.InfoNCEOther"}}
    assert digest(other) != digest() == digest(dict(reversed(METHOD.items())))
    assert digest({"_target_": "my.package.SimCSE"}) is None


def test_empty_fields_of_later_python_versions_do_not_count(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = digest()
    monkeypatch.setattr(ast.ClassDef, "_fields", (*ast.ClassDef._fields, "more"))
    monkeypatch.setattr(ast.ClassDef, "more", [], raising=False)
    assert digest() == before
