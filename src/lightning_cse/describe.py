"""Describe a training set before training on it: ``python -m lightning_cse.describe
data=ngcse_wiki_sts``.
"""

import sys
from functools import partial

from lightning_cse.config.launch import launch

main = partial(launch, "lightning_cse.analysis.describing:run", config_name="describe")

if __name__ == "__main__":
    sys.exit(main())
