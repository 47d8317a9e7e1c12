"""Training rows that a language model writes by a pattern of similarity: what is asked, and what of it is taken."""

from lightning_cse.generation.checks import REASONS, Checks, Judged
from lightning_cse.generation.journal import Journal
from lightning_cse.generation.pattern import (
    ANCHOR,
    SOURCE,
    Pattern,
    Prompt,
    Role,
    build_pattern,
    wrong_pattern,
)
from lightning_cse.generation.settled import UNANSWERABLE, Rejected, Settled, Tally, Unanswered
from lightning_cse.generation.writing import Writer

__all__ = [
    "ANCHOR",
    "REASONS",
    "SOURCE",
    "UNANSWERABLE",
    "Checks",
    "Journal",
    "Judged",
    "Pattern",
    "Prompt",
    "Rejected",
    "Role",
    "Settled",
    "Tally",
    "Unanswered",
    "Writer",
    "build_pattern",
    "wrong_pattern",
]
