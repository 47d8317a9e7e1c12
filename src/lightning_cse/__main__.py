"""The console command: ``lightning-cse train ...`` is ``python -m lightning_cse.train ...``."""

import importlib
import os
import sys
from pathlib import Path

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


OF_HYDRA = ("train", "evaluate", "generate", "describe")
"""The commands whose words are overrides, which Hydra completes in a shell."""


@reported
def main() -> int:
    """Run the command that the first word names, or list the commands."""
    name, *arguments = sys.argv[1:] or ["--help"]
    if name in ("-h", "--help"):
        sys.stdout.write("lightning-cse COMMAND ...; COMMAND --help prints its options\n\n")
        for command, purpose in COMMANDS.items():
            sys.stdout.write(f"  {command:<11}{purpose}\n")

        return 0

    if name in ("-sc", "--shell-completion"):
        return _complete(arguments)

    if name not in COMMANDS:
        near = did_you_mean(name, COMMANDS)
        raise LightningCSEError(
            f"unknown command {name!r}{near} (choose from: {', '.join(COMMANDS)})"
        )

    return _start(name, [f"lightning-cse {name}", *arguments])


def _start(name: str, words: list[str]) -> int:
    sys.argv = words
    # Classes of one's own are found in the working directory, as with `python -m`.
    folder = str(Path.cwd())
    if not sys.flags.safe_path and not {"", folder} & {*sys.path}:
        sys.path.insert(0, folder)

    module = importlib.import_module(f"lightning_cse.{MODULES.get(name, name)}")
    code: int = module.main()

    return code


def _complete(arguments: list[str]) -> int:
    """Complete a command's name, and let Hydra complete its overrides."""
    line = os.environ.get("COMP_LINE", "")
    app, _, after = line.partition(" ")
    name, space, overrides = after.lstrip().partition(" ")
    if line and not space:
        sys.stdout.write(
            " ".join(command for command in COMMANDS if command.startswith(name)) + "\n"
        )
        return 0

    if line and name not in OF_HYDRA:
        return 0

    os.environ["COMP_LINE"] = f"{app} {overrides}"

    return _start(name or "train", ["lightning-cse", "-sc", *arguments])


if __name__ == "__main__":
    sys.exit(main())
