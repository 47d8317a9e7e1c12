"""Print how many modules of the package building the DualCSE experiment imports, and their names.

python scripts/training_imports.py
"""

import sys

from lightning_cse.config.compose import compose_run
from lightning_cse.engine.build import build

OVERRIDES = ["+experiment=dualcse_cross", "+debug=tiny", "paths.cache_dir=null"]

if __name__ == "__main__":
    build(compose_run("train", OVERRIDES))
    names = sorted(name for name in sys.modules if name.partition(".")[0] == "lightning_cse")
    sys.stdout.write("\n".join([*names, f"{len(names)} modules"]) + "\n")
