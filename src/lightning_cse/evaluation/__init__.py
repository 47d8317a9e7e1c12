"""Evaluation tasks, one a file: they ask a method a few questions and know nothing else of it."""

from lightning_cse.baselines import Verdict
from lightning_cse.evaluation.average import Average
from lightning_cse.evaluation.direction import Direction, INLIDirection
from lightning_cse.evaluation.eis import EIS, PairEIS
from lightning_cse.evaluation.nli import NLI
from lightning_cse.evaluation.rte import RTE
from lightning_cse.evaluation.sts import STS, STSB
from lightning_cse.evaluation.task import (
    Answers,
    Embedded,
    Judge,
    Split,
    Summary,
    Task,
    TaskResult,
    check_parts,
    run_tasks,
    summarize_tasks,
)
from lightning_cse.evaluation.transfer import Transfer

__all__ = [
    "EIS",
    "NLI",
    "RTE",
    "STS",
    "STSB",
    "Answers",
    "Average",
    "Direction",
    "Embedded",
    "INLIDirection",
    "Judge",
    "PairEIS",
    "Split",
    "Summary",
    "Task",
    "TaskResult",
    "Transfer",
    "Verdict",
    "check_parts",
    "run_tasks",
    "summarize_tasks",
]
