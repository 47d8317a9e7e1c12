"""Uploads an exported folder to the Hugging Face hub, or lists what would be uploaded."""

from __future__ import annotations

from pathlib import Path

import httpx2  # of huggingface_hub
from huggingface_hub import HfApi, ModelCard
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # documented, not in __all__

from lightning_cse.errors import LightningCSEError


def check_repo(repo: str) -> None:
    """Raise LightningCSEError unless this can be the name of a model on the hub: ``user/name``."""
    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise LightningCSEError(f"--push: {error}") from error
    if repo.count("/") != 1:
        raise LightningCSEError(f"--push: must be user/name, as in https://huggingface.co/user/name, got {repo!r}")


def listing(folder: Path, repo: str, *, private: bool) -> str:
    """Return what `push` would upload: the files with their sizes, and the head of the model card. Asks no network."""
    files = {path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    width = max(map(len, files))
    lines = [f"  {name:{width}}  {size:>13,} bytes" for name, size in sorted(files.items())]
    head = (folder / "README.md").read_text(encoding="utf-8").splitlines()[:30]
    where = f"https://huggingface.co/{repo} ({'private' if private else 'public, or as the repository is'})"
    total = f"{len(files)} files, {sum(files.values()):,} bytes, would be uploaded to {where}"
    return "\n".join([total, *lines, "README.md begins with", *head])


def push(folder: Path, repo: str, *, private: bool) -> str:
    """Upload a folder with the token of ``hf auth login`` or ``HF_TOKEN``, and return the address of the commit.

    The repository is made if there is none. With ``private`` one that others can read is refused. The hub checks the
    card before anything is uploaded.
    """
    api = HfApi()
    try:
        ModelCard.load(folder / "README.md").validate()
        api.create_repo(repo, private=private or None, exist_ok=True)
        if private and not api.model_info(repo).private:
            raise LightningCSEError(f"--private: {repo} is public already: nothing is uploaded. Give another name")
        commit = api.upload_folder(repo_id=repo, folder_path=folder, commit_message="Upload by lightning_cse.export")
    except (httpx2.HTTPError, OSError, ValueError) as error:  # no token, no network, no permission, a wrong card
        why = " ".join(str(error).split())[:300]
        helps = f"{folder} is kept: log in with `hf auth login` or set HF_TOKEN, then `hf upload {repo} {folder}`"
        raise LightningCSEError(f"--push: {repo}: {type(error).__name__}: {why}. {helps}") from error
    return str(commit.commit_url)
