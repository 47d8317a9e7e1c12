"""Evaluation tasks, one a file: they ask a method a few questions and know nothing else of it."""

from lightning_cse.evaluation.direction import Direction
from lightning_cse.evaluation.eis import EIS
from lightning_cse.evaluation.nli import NLI
from lightning_cse.evaluation.rte import RTE
from lightning_cse.evaluation.sts import STSB
from lightning_cse.evaluation.task import Answers, Embedded, Split, Task, TaskResult, run_tasks

__all__ = ["EIS", "NLI", "RTE", "STSB", "Answers", "Direction", "Embedded", "Split", "Task", "TaskResult", "run_tasks"]
