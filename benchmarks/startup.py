"""Measure the cost of a run before its first step, and that of each point of a sweep, in seconds of
CPU.

    python benchmarks/startup.py python benchmarks/startup.py +experiment=gausscse +profile=small
    trainer.max_steps=5      # with LIGHTNING_CSE_DATA

There are three processes: one only imports pytorch_lightning, one trains a run, and one sweeps over
three seeds. CPU time is measured, so that a busy machine changes little. Training steps,
evaluations (including that of step 0) and the test do not count: their seconds are in the records.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measuring import console

RUN = (
    "+experiment=dualcse_cross",
    "+profile=laptop",
    "trainer.max_steps=5",
    "limits.dev_rows=20",
    "limits.test_rows=20",
)
CHILD = "LIGHTNING_CSE_STARTUP"
LIGHTNING = f"import time, pytorch_lightning; print('{CHILD} lightning', time.process_time())"
clock = time.process_time


def main() -> None:
    """Measure, and print one line per number."""
    words = sys.argv[1:] or list(RUN)
    with tempfile.TemporaryDirectory() as folder:
        run = [
            sys.executable,
            str(Path(__file__).resolve()),
            *words,
            f"paths.runs_dir={folder}/runs",
        ]
        (lightning,) = _seconds([sys.executable, "-c", LIGHTNING], "lightning", folder)
        (before,) = _seconds(run, "before", folder)
        first, *later = _seconds([*run, "seed=1,2,3", "-m"], "point", folder)

    out = console()
    out.print(f"import of pytorch_lightning: {lightning:.2f} s")
    out.print(
        f"a run until training starts: {before:.2f} s, {before - lightning:.2f} beyond the import"
    )
    points = ", ".join(f"{seconds:.2f}" for seconds in (first, *later))
    out.print(f"a sweep's points, the first with the imports: {points} s")


def _seconds(command: list[str], label: str, folder: str) -> list[float]:
    """Run a command in a folder, and return the seconds that it prints with a label."""
    environment = os.environ | {CHILD: "1"}
    process = subprocess.run(
        command, check=False, cwd=folder, env=environment, capture_output=True, text=True
    )
    seconds = re.findall(rf"(?m)^{CHILD} {label} ([\d.]+)$", process.stdout)
    if process.returncode or not seconds:
        sys.exit(f"{' '.join(command)}\n{process.stdout}{process.stderr}")

    return list(map(float, seconds))


def watched() -> int:
    """Run the training command in this process; print the CPU seconds until training starts, and of
    each point.
    """
    from lightning_cse.config import launch

    measured = 0.0

    def say(label: str, seconds: float) -> None:
        sys.stdout.write(f"\n{CHILD} {label} {seconds:.3f}\n")

    def timed(owner: Any, name: str, label: str = "") -> None:
        inner = getattr(owner, name)

        @functools.wraps(inner)
        def outer(*args: Any, **kwargs: Any) -> Any:
            nonlocal measured
            start = clock()
            if label:
                say(label, start)
            try:
                return inner(*args, **kwargs)
            finally:
                measured += clock() - start

        setattr(owner, name, outer)

    def told(cfg: Any) -> Any:
        from pytorch_lightning.loops.fit_loop import _FitLoop

        from lightning_cse.engine import train

        if not hasattr(_FitLoop.run, "__wrapped__"):
            timed(_FitLoop, "run", "before")
            timed(train, "test")
        return train.run(cfg)

    def run(self: Any, cfg: Any) -> Any:
        start, before = clock(), measured
        try:
            return inner_run(self, cfg)
        finally:
            say("point", clock() - start - (measured - before))

    inner_run, launch.Runner.run = launch.Runner.run, run  # type: ignore[method-assign]
    globals()["told"] = told  # the launcher looks the task up by its name
    return launch.launch("__main__:told", config_name="train")


if __name__ == "__main__":
    if os.environ.get(CHILD):
        sys.exit(watched())

    main()
