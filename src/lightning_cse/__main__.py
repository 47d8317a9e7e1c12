"""The console command: ``lightning-cse train ...`` is ``python -m lightning_cse.train ...``."""

import importlib
import sys

from lightning_cse.errors import LightningCSEError, did_you_mean, reported

COMMANDS = (
    *("train", "evaluate", "reproduce", "compare", "report", "dashboard"),
    *("export", "describe", "generate", "prepare"),
)


@reported
def main() -> int:
    """Run the command that the first word names, or list the commands."""
    name, *rest = sys.argv[1:] or ["--help"]
    if name in ("-h", "--help"):
        names = ", ".join(COMMANDS)
        sys.stdout.write(f"lightning-cse COMMAND ...: one of {names}; COMMAND --help tells more\n")
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
