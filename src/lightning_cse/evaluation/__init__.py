"""Evaluation tasks, one a file: they ask a model a few questions and know nothing else about it."""

from lightning_cse.baselines import Verdict
from lightning_cse.evaluation.direction import Direction, INLIDirection
from lightning_cse.evaluation.eis import EIS, PairEIS
from lightning_cse.evaluation.nli import NLI
from lightning_cse.evaluation.rte import RTE
from lightning_cse.evaluation.sts import STS, STSB
from lightning_cse.evaluation.suite import Average, Summary, check_parts, run_tasks, summarize_tasks
from lightning_cse.evaluation.task import Answers, CorpusTask, Embedded, Judge, Split, Task, TaskResult
from lightning_cse.evaluation.transfer import Transfer

__all__ = [
    "EIS",
    "NLI",
    "RTE",
    "STS",
    "STSB",
    "Answers",
    "Average",
    "CorpusTask",
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
