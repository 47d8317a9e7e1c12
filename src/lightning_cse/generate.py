"""Have a language model write rows: ``python -m lightning_cse.generate +pattern=sts data=wiki llm.model=...``."""

from __future__ import annotations

from lightning_cse.config.launch import launch


def main() -> None:
    """Read the command line and generate; everything heavy is imported only then."""
    launch("lightning_cse.generation.generating:run", config_name="generate")


if __name__ == "__main__":
    main()
