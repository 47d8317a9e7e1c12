"""Evaluate one model on one suite of tasks: ``python -m lightning_cse.evaluate model=minilm_l6
+suite=sts``.
"""

import sys

from lightning_cse.arguments import quote_free_text
from lightning_cse.config.launch import launch


def main() -> int:
    """Read the command line, evaluate, and return the exit code."""
    args = quote_free_text(sys.argv[1:])
    return launch("lightning_cse.engine.evaluate:run", config_name="evaluate", args=args)


if __name__ == "__main__":
    sys.exit(main())
