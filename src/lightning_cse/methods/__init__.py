"""The methods, one paper a file."""

from lightning_cse.methods.base import Method
from lightning_cse.methods.dualcse import DualCSE
from lightning_cse.methods.dualgauss import DualGauss
from lightning_cse.methods.gausscse import GaussCSE
from lightning_cse.methods.impscore import ImpScore
from lightning_cse.methods.ngcse import NGCSE
from lightning_cse.methods.schedules import Schedule
from lightning_cse.methods.simcse import SimCSE, UnsupervisedSimCSE

__all__ = [
    "NGCSE",
    "DualCSE",
    "DualGauss",
    "GaussCSE",
    "ImpScore",
    "Method",
    "Schedule",
    "SimCSE",
    "UnsupervisedSimCSE",
]
