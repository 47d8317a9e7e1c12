"""The progress that is shown while training."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from lightning_cse.callbacks import StepBar
from lightning_cse.callbacks.steps import run_bar


def test_the_bar_of_a_long_run_fits_one_line_of_80_columns() -> None:
    evaluation: Any = SimpleNamespace(latest={"val/stsb/spearman": 0.81234}, monitor="val/stsb/spearman", step=125)
    bar = StepBar(evaluation)
    sink = io.StringIO()
    bar._bar = run_bar(150_000, 10_000)
    bar._bar.live.console = Console(file=sink, width=80, force_terminal=True, color_system=None)
    trainer: Any = SimpleNamespace(global_step=12_345, accumulate_grad_batches=1)
    loss: Any = {"loss": SimpleNamespace(item=lambda: 12.34567)}
    bar.on_train_batch_end(trainer, None, loss, None, 0)  # type: ignore[arg-type]
    bar._bar.console.print(bar._bar.get_renderable())
    (line,) = sink.getvalue().splitlines()
    assert " 12345/150000 " in line
    assert line.rstrip().endswith("loss 12.346  dev 0.8123")
    assert len(line) <= 80
