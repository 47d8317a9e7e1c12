"""The console command: ``lightning-cse train ...`` is ``python -m lightning_cse.train ...``."""

import os
import sys

from lightning_cse.errors import LightningCSEError, did_you_mean, reported

COMMANDS = {
    "train": "train one method on one corpus",
    "evaluate": "measure a run, an encoder or a language model on a suite of tasks",
    "runs": "list the runs on disk, or remove some",
    "compare": "compare runs on their test metrics",
    "report": "write runs, tables and curves as one HTML file",
    "reproduce": "make the tables and figures of a paper",
    "generate": "let a language model write training rows",
    "describe": "describe a corpus before training on it",
    "prepare": "fetch corpora",
    "export": "write a run as a folder of sentence-transformers",
}
"""What each command does."""

MODULES = {"runs": "list_runs"}
"""The modules of commands whose names are those of packages."""


@reported
def main() -> int:
    """Run the command that the first word names, or list the commands."""
    name, *arguments = sys.argv[1:] or ["--help"]
    if name in ("-h", "--help"):
        sys.stdout.write("lightning-cse COMMAND ...; COMMAND --help prints its options\n\n")
        for command, purpose in COMMANDS.items():
            sys.stdout.write(f"  {command:<11}{purpose}\n")

        return 0

    if name in COMMANDS:
        module = f"lightning_cse.{MODULES.get(name, name)}"
        os.execv(sys.executable, [sys.executable, "-m", module, *arguments])  # noqa: S606 - ours

    near = did_you_mean(name, COMMANDS)
    raise LightningCSEError(f"unknown command {name!r}{near} (choose from: {', '.join(COMMANDS)})")


if __name__ == "__main__":
    sys.exit(main())
