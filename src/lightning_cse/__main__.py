"""The console command: ``lightning-cse train ...`` is ``python -m lightning_cse.train ...``."""

import importlib
import sys
from pathlib import Path
from typing import Final

from lightning_cse.errors import LightningCSEError, did_you_mean, reported

COMMANDS: Final = (
    *("train", "evaluate", "reproduce", "compare", "report", "dashboard"),
    *("export", "describe", "generate", "prepare"),
)


@reported
def main() -> int:
    """Run the command that the first word names, or list the commands."""
    name, *rest = sys.argv[1:] or ["--help"]
    if name in ("-h", "--help"):
        sys.stdout.write(
            "lightning-cse COMMAND ...: run one of these; COMMAND --help shows its options\n\n"
        )
        for command in COMMANDS:
            text = (Path(__file__).parent / f"{command}.py").read_text(encoding="utf-8")[
                3:
            ]  # faster than importing
            sys.stdout.write(f"  {command:<10} {text.partition(': ``')[0]}\n")

        return 0

    if name not in COMMANDS:
        raise LightningCSEError(
            f"unknown command {name!r}{did_you_mean(name, COMMANDS)} (choose from: {', '.join(COMMANDS)})"
        )

    sys.argv = [f"lightning-cse {name}", *rest]
    code: int = importlib.import_module(f"lightning_cse.{name}").main()
    return code


if __name__ == "__main__":
    sys.exit(main())
