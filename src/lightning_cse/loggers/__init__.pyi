from .build import build_loggers as build_loggers
from .build import is_logged_in as is_logged_in
from .build import log_final as log_final
from .curves import CurvesDigest as CurvesDigest
from .curves import CurvesLogger as CurvesLogger
from .guard import Guard as Guard
from .guard import guarded as guarded
from .plots import run_figures as run_figures
