"""What a run leaves on disk: its identity, its folder, its curves, its predictions and the record that closes it."""

from lightning_cse.runs.curves import Curves
from lightning_cse.runs.environments import environment
from lightning_cse.runs.folder import FailedBeforeError, Run, RunStatus
from lightning_cse.runs.identities import identity, identity_document
from lightning_cse.runs.lines import Lines
from lightning_cse.runs.lock import Busy, Lock, Owner
from lightning_cse.runs.writing import atomic_file, write_atomic, write_predictions

__all__ = [
    "Busy",
    "Curves",
    "FailedBeforeError",
    "Lines",
    "Lock",
    "Owner",
    "Run",
    "RunStatus",
    "atomic_file",
    "environment",
    "identity",
    "identity_document",
    "write_atomic",
    "write_predictions",
]
