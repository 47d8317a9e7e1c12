"""A record is stale when the numbers of its method may have changed, and only then."""

import ast
import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lightning_cse.runs import code

REPOSITORY = Path(__file__).parents[2]
EXPERIMENT_OF = {
    "SimCSE": "simcse_sup",
    "UnsupervisedSimCSE": "simcse_unsup",
    "GaussCSE": "gausscse",
    "DualCSE": "dualcse_cross",
    "DualGauss": "dualgauss",
    "ImpScore": "impscore_inli",
    "NGCSE": "ngcse_nli_sts_ht",
    "SBERT": "sbert",
    "SBERTRegression": "sbert_regression",
    "InferSent": "infersent",
    "PromptBERT": "promptbert",
    "ConSERT": "consert",
    "JointConSERT": "consert_joint_adversarial",
    "InfoCSE": "infocse",
    "Dino": "dino",
    "CLAIF": "claif",
    "CLHAIF": "clhaif",
}
"""An experiment of each method."""


@dataclass(frozen=True)
class Mutant:
    """A change of numbers: a text of a file and its replacement, and a method whose records it
    makes stale.
    """

    file: str
    old: str
    new: str
    method: str
    other: str = ""
    """A method whose records stay fresh."""


MUTANTS = (
    Mutant("losses/info_nce.py", "dim=1) / temperature", "dim=1) / (2 * temperature)", "SimCSE"),
    Mutant("losses/margins.py", "middle - high +", "high - middle +", "NGCSE", "GaussCSE"),
    Mutant("losses/nt_xent.py", "(across.T, positive)", "(across, positive)", "ConSERT", "SimCSE"),
    Mutant(
        "losses/dual_contrastive.py", "negative.explicit", "negative.implicit", "DualCSE", "NGCSE"
    ),
    Mutant(
        "losses/gaussian_contrastive.py",
        "(premise, entailment)",
        "(entailment, premise)",
        "GaussCSE",
    ),
    Mutant(
        "methods/base.py",
        "clip_grad_norm_(self.parameters(), most)",
        "clip_grad_norm_(self.parameters(), most / 9)",
        "SimCSE",
    ),
    Mutant("methods/base.py", "total - step", "total - step / 2", "DualCSE"),
    Mutant("methods/simcse.py", "has_head=True", "has_head=False", "SimCSE", "GaussCSE"),
    Mutant(
        "methods/gausscse.py",
        'roles: tuple[str, ...] = ("premise", "entailment")',
        'roles: tuple[str, ...] = ("entailment", "premise")',
        "GaussCSE",
    ),
    Mutant(
        "methods/dualcse.py",
        "self.loss(**embeddings",
        "2 * self.loss(**embeddings",
        "DualCSE",
        "SimCSE",
    ),
    Mutant("methods/dualgauss.py", "architecture=architecture", 'architecture="bi"', "DualGauss"),
    Mutant(
        "methods/impscore.py",
        "pos_implicit, pos_explicit)",
        "pos_implicit, neg_explicit)",
        "ImpScore",
    ),
    Mutant("methods/ngcse.py", "std=0.006", "std=0.06", "NGCSE", "ImpScore"),
    Mutant(
        "methods/sbert.py",
        "classes=classes, parts=parts",
        "classes=classes + 1, parts=parts",
        "SBERT",
        "SimCSE",
    ),
    Mutant(
        "methods/infersent.py",
        "            parts=parts,",
        "            parts=parts[:3],",
        "InferSent",
        "SBERT",
    ),
    Mutant("losses/pairs.py", "(first - second).abs()", "first - second", "SBERT", "SimCSE"),
    Mutant("losses/soft_info_nce.py", "-likelihood.mean()", "likelihood.mean()", "CLHAIF", "SBERT"),
    Mutant(
        "models/pair.py",
        "self.parts = list(parts)",
        "self.parts = list(parts)[:2]",
        "SBERT",
        "SimCSE",
    ),
    Mutant(
        "encoders/recurrent.py", "bidirectional=True", "bidirectional=False", "InferSent", "SBERT"
    ),
    Mutant(
        "methods/promptbert.py",
        "denoise=self.denoise",
        "denoise=not self.denoise",
        "PromptBERT",
        "SimCSE",
    ),
    Mutant(
        "methods/written.py",
        'scores=batch["targets"]',
        'scores=1 - batch["targets"]',
        "CLHAIF",
        "SimCSE",
    ),
    Mutant(
        "methods/infocse.py", "chance < self.share", "chance < self.share / 2", "InfoCSE", "SimCSE"
    ),
    Mutant(
        "methods/consert.py",
        "self.augmentations[number]",
        "self.augmentations[0]",
        "ConSERT",
        "PromptBERT",
    ),
    Mutant("methods/consert.py", "self.weight * contrast", "contrast", "JointConSERT", "ConSERT"),
    Mutant(
        "encoders/augmentation.py",
        "self.norm * gradient",
        "-self.norm * gradient",
        "JointConSERT",
        "ConSERT",
    ),
    Mutant("models/base.py", "enabled=False", "enabled=True", "SimCSE"),
    Mutant("models/point.py", "nn.Tanh()", "nn.Sigmoid()", "SimCSE", "GaussCSE"),
    Mutant("models/gaussian.py", "nn.Tanh()", "nn.Sigmoid()", "GaussCSE", "DualCSE"),
    Mutant(
        "models/dual.py",
        'encoder.template("explicit")',
        'encoder.template("implicit")',
        "DualCSE",
        "NGCSE",
    ),
    Mutant(
        "models/dual_gaussian.py", "cosine(a.explicit_mean", "-cosine(a.explicit_mean", "DualGauss"
    ),
    Mutant("models/impscore.py", "1 - cosine(a, b)", "1 - cosine(b, b)", "ImpScore", "SimCSE"),
    Mutant("encoders/encoder.py", "states[-1].float()) / 2", "states[-1].float()) / 3", "SimCSE"),
    Mutant("encoders/encoder.py", "hidden * weights, 1) /", "hidden * weights, 1) -", "NGCSE"),
    Mutant(
        "encoders/augmentation.py",
        "int(width * self.share)",
        "int(width * self.share / 2)",
        "ConSERT",
        "SimCSE",
    ),
    Mutant("encoders/load.py", '"num_hidden_layers", 1)', '"num_hidden_layers", 2)', "DualCSE"),
    Mutant("encoders/packing.py", "is_other, -torch.inf", "is_other, -1.0", "SimCSE"),
    Mutant("encoders/mpnet.py", "windows.bias + relative", "windows.bias - relative", "SimCSE"),
    Mutant("encoders/windowed.py", "hidden.add_(residual)", "hidden.sub_(residual)", "SimCSE"),
    Mutant(
        "encoders/architecture.py",
        "backbone.config.is_causal = False",
        "backbone.config.is_causal = True",
        "SimCSE",
    ),
    Mutant("encoders/adapters.py", "manual_seed(torch.initial_seed())", "manual_seed(0)", "SimCSE"),
    Mutant(
        "encoders/instructions.py",
        'given.get("default", query)',
        'given.get("default", "")',
        "SimCSE",
    ),
    Mutant("encoders/templates.py", "after >= start", "after > start", "NGCSE"),
    Mutant("tokens.py", "places < lengths", "places + 1 < lengths", "SimCSE"),
    Mutant(
        "similarity.py",
        "torch.expm1(ratio) - ratio",
        "torch.expm1(ratio) + ratio",
        "GaussCSE",
        "DualCSE",
    ),
    Mutant("data/sampler.py", "state >> 1", "state >> 2", "SimCSE"),
)


@pytest.fixture
def copy(tmp_path):
    """A copy of the code that golden runs need."""
    for name in ("src", "conf", "scripts", "tests/golden"):
        shutil.copytree(
            REPOSITORY / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__")
        )

    code.functions_of.cache_clear()

    return tmp_path


def source_changed(copy, method):
    functions = code.golden_methods()[method]["unexercised"]
    mutated = code.source_digest(functions, copy / "src/lightning_cse")
    return mutated != code.source_digest(functions)


def results_changed(copy, method):
    """Whether writing the golden results again would change those of a method."""
    command = [
        sys.executable,
        "scripts/golden.py",
        "runs",
        "--check",
        "--only",
        EXPERIMENT_OF[method],
    ]
    environment = {**os.environ, "PYTHONPATH": str(copy / "src")}
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    assert "worst relative difference" in done.stdout or done.returncode, done.stderr

    return done.returncode != 0


def is_stale(copy, method):
    return source_changed(copy, method) or results_changed(copy, method)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.file)
def test_changed_numbers_make_records_stale(copy, mutant):
    path = copy / "src/lightning_cse" / mutant.file
    text = path.read_text(encoding="utf-8")
    assert text.count(mutant.old) >= 1, (
        f"{mutant.file} has no {mutant.old!r}: choose another change"
    )
    path.write_text(text.replace(mutant.old, mutant.new, 1), encoding="utf-8")
    assert is_stale(copy, mutant.method)
    if mutant.other:
        assert not is_stale(copy, mutant.other)


class Renamed(ast.NodeTransformer):
    """Every local variable of a function with another name."""

    def visit_FunctionDef(self, function):
        arguments = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
        shared = set()
        for node in ast.walk(function):
            if isinstance(node, ast.Global | ast.Nonlocal):
                shared.update(node.names)

        names = set()
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)

        for node in ast.walk(function):
            if isinstance(node, ast.Name) and node.id in names - arguments - shared:
                node.id = f"renamed_{node.id}"

        return function


@functools.cache
def mutated_files():
    return tuple(sorted({mutant.file for mutant in MUTANTS}))


@pytest.mark.slow
def test_renamed_variables_leave_all_records_fresh(copy):
    unchanged = set()
    for file in mutated_files():
        path = copy / "src/lightning_cse" / file
        tree = Renamed().visit(ast.parse(path.read_bytes()))
        path.write_text(ast.unparse(tree), encoding="utf-8")
        if "renamed_" not in path.read_text(encoding="utf-8"):
            unchanged.add(file)

    assert unchanged == {"methods/infersent.py"}, "which has no local variables"
    for method in EXPERIMENT_OF:
        assert not is_stale(copy, method), method


def test_every_file_that_decides_numbers_has_a_mutant():
    package = REPOSITORY / "src/lightning_cse"
    folders = ("losses", "methods", "models", "encoders")
    files: Iterator[Path] = (path for name in folders for path in (package / name).glob("[!_]*.py"))
    expected = {path.relative_to(package).as_posix() for path in files}
    expected |= {"tokens.py", "similarity.py", "data/sampler.py"}
    expected.remove("losses/checks.py")  # which only raises errors
    assert expected == set(mutated_files())
