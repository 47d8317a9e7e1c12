"""Evaluations on the sample corpus, for the tests of this folder."""

from pathlib import Path

import pytest

from lightning_cse.arguments import quote_free_text
from lightning_cse.config.compose import compose_run
from lightning_cse.engine.evaluate import evaluate
from lightning_cse.runs import Run


@pytest.fixture
def run(tmp_path):
    """Evaluate on the sample corpus; runs and replies are written to the test's folder."""

    def evaluated(*overrides):
        line = ("corpora=sample", "paths=sample", *overrides)
        cfg = compose_run("evaluate", quote_free_text(line))
        cfg.paths.runs_dir = str(tmp_path / "runs")

        if cfg.paths.cache_dir is not None:
            cfg.paths.cache_dir = str(tmp_path / "cache")

        suite = next(
            (
                override.removeprefix("+suite=")
                for override in overrides
                if override.startswith("+suite=")
            ),
            "none",
        )

        return Run.at(Path(evaluate(cfg, suite, line).folder))

    return evaluated
