"""The digest of a method's code: what changes it, and what does not."""

import sys

import golden
import golden_code
import pytest

from lightning_cse.runs import code
from lightning_cse.runs.code import code_digest

METHOD = {
    "_target_": "lightning_cse.methods.GaussCSE",
    "loss": {"_target_": "lightning_cse.losses.GaussianContrastive"},
    "optimizer": {"_target_": "torch.optim.AdamW"},
}
SOURCE = '''
LIMIT = 3


def scale(vector, limit=None):
    """Return a scaled vector."""
    longest = max(vector)
    if longest > LIMIT:
        raise ValueError(f"{longest} is too long")
    log.warning("scaled")
    return [value / longest for value in vector]
'''


@pytest.fixture
def package(tmp_path):
    (tmp_path / "file.py").write_text(SOURCE)
    return tmp_path


def source(package, function="scale"):
    code.functions_of.cache_clear()
    return code.source_digest([f"file.py:{function}"], package)


@pytest.mark.parametrize(
    ("old", "new", "is_changed"),
    [
        ("value / longest", "value * longest", True),
        ("LIMIT = 3", "LIMIT = 4", True),
        ("limit=None", "limit=1", True),
        ("longest > LIMIT", "longest >= LIMIT", True),
        ("longest", "maximum", False),
        ("def scale", "def rescale", False),
        ('"""Return a scaled vector."""', "# A comment.", False),
        ("is too long", "must be shorter", False),
        ('log.warning("scaled")', 'log.info("other")', False),
        ("vector, limit=None", "vector: list[float], limit: int | None = None", False),
        ("def scale", "def other():\n    return 1\n\n\ndef scale", False),
    ],
)
def test_source_digest(package, old, new, is_changed):
    before = source(package)
    assert old in SOURCE
    (package / "file.py").write_text(SOURCE.replace(old, new))
    name = "rescale" if "rescale" in new else "scale"
    assert (source(package, name) != before) == is_changed


def test_digest_follows_the_golden_results_of_the_method(monkeypatch):
    before = code_digest(METHOD)
    other = code_digest({"_target_": "lightning_cse.methods.DualCSE"})
    known = code.golden_methods()
    changed = {**known, "GaussCSE": {**known["GaussCSE"], "results": "0123456789"}}
    monkeypatch.setattr(code, "golden_methods", lambda: changed)
    assert code_digest(METHOD) != before
    assert code_digest({"_target_": "lightning_cse.methods.DualCSE"}) == other


def test_golden_file_agrees_with_the_golden_results():
    results = golden.read("runs")
    methods = {}
    for name, config in golden.read("configs").items():
        methods.setdefault(config["method._target_"], {})[name] = results[name]

    digests = {method: code.digest(of_method) for method, of_method in methods.items()}
    assert digests == {name: each["results"] for name, each in code.golden_methods().items()}, (
        "run python scripts/golden.py runs"
    )


def test_unexercised_functions_exist():
    functions = golden_code.places()
    for method, known in code.golden_methods().items():
        unknown = set(known["unexercised"]) - functions
        assert not unknown, f"{method}: run python scripts/golden.py runs"


@pytest.mark.parametrize(
    ("file", "is_changed"),
    [("mine.py", True), ("helper.py", True), ("folder/deep.py", True), ("other.py", False)],
)
def test_digest_of_outside_code_follows_the_modules_it_imports(
    tmp_path, monkeypatch, file, is_changed
):
    files = {
        "mine.py": "import torch\nfrom helper import value\nclass Mine: ...\n",
        "helper.py": "from folder import deep\nvalue = 1\n",
        "folder/__init__.py": "",
        "folder/deep.py": "value = 2\n",
        "other.py": "value = 3\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    method = {"_target_": "mine.Mine"}
    before = code_digest(method)
    path = tmp_path / file
    path.write_text(path.read_text() + "more = 4\n")
    assert (code_digest(method) != before) == is_changed
    for name in ("mine", "helper", "folder", "folder.deep"):
        sys.modules.pop(name, None)
