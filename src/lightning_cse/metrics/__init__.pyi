from .alignment_uniformity import alignment as alignment
from .alignment_uniformity import uniformity as uniformity
from .correlation import (
    spearman as spearman,
)
from .correlation import (
    spearman_all as spearman_all,
)
from .correlation import (
    spearman_mean as spearman_mean,
)
from .correlation import (
    spearman_wmean as spearman_wmean,
)
from .edit import match_error_rate as match_error_rate
from .edit import match_error_rates as match_error_rates
from .precision_recall import auprc as auprc
from .rfd import mean_of_best as mean_of_best
from .rfd import relative_fitting_difficulty as relative_fitting_difficulty
from .significance import (
    McNemar as McNemar,
)
from .significance import (
    PairedBootstrap as PairedBootstrap,
)
from .significance import (
    bootstrap_statistics as bootstrap_statistics,
)
from .significance import (
    holm as holm,
)
from .significance import (
    majority_vote as majority_vote,
)
from .significance import (
    mcnemar as mcnemar,
)
from .significance import (
    paired_bootstrap as paired_bootstrap,
)
from .significance import (
    spearman_of_draws as spearman_of_draws,
)
from .threshold import best_threshold as best_threshold
from .threshold import threshold_accuracy as threshold_accuracy
