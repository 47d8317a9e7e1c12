"""A small tree of configs in the shape of the project's own, and targets for it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import lightning_cse

_TREE = {
    "train.yaml": """
        defaults:
          - method: null
          - encoder: roberta_base
          - trainer: default
          - logger: wandb
          - _self_
        name: ???
        seed: 0
        monitor: null
        what: ok
        order: train
        tags: [a, b]
        recipe: {default: {}}
        hydra:
          run: {dir: "${oc.env:RUNS}/run"}
          sweep: {dir: "${oc.env:RUNS}/sweep", subdir: "${hydra.job.num}"}
        """,
    "experiment/dualcse_cross.yaml": """
        # @package _global_
        # DualCSE with a cross-encoder.
        # Second line.
        defaults:
          - override /method: dualcse
        name: dualcse_cross
        order: experiment
        recipe: {default: {lr: 5e-5}, bert_base: {lr: 3e-5}}
        """,
    "experiment/simcse.yaml": """
        # @package _global_
        # SimCSE, supervised.
        defaults:
          - override /method: simcse
        name: simcse
        recipe: {default: {lr: 1e-5}}
        """,
    "profile/laptop.yaml": """
        # @package _global_
        order: profile
        """,
    "sweep/seeds.yaml": """
        # @package _global_
        order: sweep
        hydra: {mode: MULTIRUN, sweeper: {params: {seed: "range(0,3)"}}}
        """,
    "sweep/both.yaml": """
        # @package _global_
        hydra: {mode: MULTIRUN, sweeper: {params: {+experiment: "dualcse_cross,simcse", seed: "1,2"}}}
        """,
    "sweep/wrong.yaml": """
        # @package _global_
        hydra: {mode: MULTIRUN, sweeper: {params: {seeed: "1,2", encoder: "bert_base,bert_bse"}}}
        """,
    "debug/tiny.yaml": """
        # @package _global_
        order: debug
        defaults:
          - override /encoder: tiny
        """,
    "method/_optimizer.yaml": """
        optimizer: {_target_: torch.optim.AdamW, _partial_: true, lr: "${recipe:lr}"}
        """,
    "method/dualcse.yaml": """
        defaults: [_optimizer, _self_]
        _target_: somewhere.DualCSE
        loss: {_target_: somewhere.Loss, temperature: 0.05, contradiction: true}
        """,
    "method/simcse.yaml": """
        defaults: [_optimizer, _self_]
        _target_: somewhere.SimCSE
        loss: {_target_: somewhere.InfoNCE, temperature: 0.05, hard_weight: 0.0}
        """,
    "encoder/roberta_base.yaml": "name: roberta_base\nmax_length: 64",
    "encoder/bert_base.yaml": "name: bert_base\nmax_length: 64",
    "encoder/tiny.yaml": "name: tiny\nmax_length: 64",
    "trainer/default.yaml": "_target_: somewhere.Trainer\nmax_epochs: 3\nlimit: null",
    "logger/wandb.yaml": "kind: wandb",
    "logger/csv.yaml": "kind: csv",
    "suite/sts.yaml": "tasks: [stsb]",
}


def write_tree(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        lines = text.strip("\n").splitlines()
        indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(line[indent:] for line in lines).rstrip() + "\n", encoding="utf-8")


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RUNS", str(tmp_path / "runs"))
    write_tree(tmp_path / "conf", _TREE)
    return tmp_path / "conf"


@pytest.fixture
def add(conf: Path) -> Callable[[dict[str, str]], None]:
    """Add files to the tree of configs."""
    return lambda files: write_tree(conf, files)


_PROGRAM = """
import math, os, sys
from datetime import UTC, datetime
from pathlib import Path
from lightning_cse.config import outcomes
from lightning_cse.config.launch import launch
from lightning_cse.errors import ConfigError, DataError, TrainingError
from lightning_cse.runs import Busy, FailedBeforeError, Owner
from omegaconf import DictConfig

def run(cfg: DictConfig) -> float:
    sys.stdout.write(f"running {cfg.name} seed={cfg.seed} order={cfg.order} encoder={cfg.encoder.name}\\n")
    sys.stdout.flush()
    what = cfg.what
    if what.endswith("odd"):
        what = (what.removesuffix("odd").rstrip("_") or "user") if cfg.seed % 2 else "ok"
    if what == "before" and cfg.seed == 2:
        outcomes.tell(Path("x"), skipped=True)
    if what == "busy":
        now = datetime.now(UTC)
        raise Busy("the run", Owner("elsewhere", 7, now, now))
    if what == "left":
        raise FailedBeforeError(Path("runs/x"), "ValueError: no")
    if what == "kill":
        os.kill(os.getpid(), 9)
    if what == "user":
        raise DataError(f"train.tsv, line {40 + cfg.seed}: no premise")
    if what == "bug":
        raise ValueError(f"a bug at seed {cfg.seed}")
    if what == "resolver":
        return cfg.method.optimizer.lr
    if what == "built":
        import hydra
        hydra.utils.instantiate({"_target_": "program_target.build"})
    if what == "interrupt":
        raise KeyboardInterrupt
    if what == "lightning_interrupt":
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            sys.exit(1)
    if what == "exit":
        sys.exit(7)
    if what == "threads":
        sys.stdout.write(os.environ["TOKENIZERS_PARALLELISM"] + "\\n")
    if what == "heavy":
        sys.stdout.write(f"torch imported: {'torch' in sys.modules}\\n")
    return float(cfg.seed)

if __name__ == "__main__":
    launch(TASK, "train", config_dir=Path(__file__).parent / "conf")
"""

_TARGET = """
from lightning_cse.errors import EncoderError

def build():
    raise EncoderError("no encoder in reach")
"""


@pytest.fixture
def program(conf: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a tiny entry point over the tree of configs as a user would."""
    folder = conf.parent
    (folder / "program_target.py").write_text(_TARGET)

    def run(*args: str, task: str = "run", **env: str) -> subprocess.CompletedProcess[str]:
        (folder / "program.py").write_text(_PROGRAM.replace("TASK", task))
        source = str(Path(lightning_cse.__file__).parents[1])
        environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": source, "RUNS": str(folder / "runs"), **env}
        return subprocess.run(
            [sys.executable, "program.py", *args],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run
