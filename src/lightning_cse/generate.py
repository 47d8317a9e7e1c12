"""Have a language model write rows: ``python -m lightning_cse.generate +pattern=sts data=wiki
llm.model=...``.
"""

import sys
from functools import partial

from lightning_cse.config.launch import launch

main = partial(launch, "lightning_cse.generation.generating:run", config_name="generate")

if __name__ == "__main__":
    sys.exit(main())
