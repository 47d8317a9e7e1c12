"""Profiles of artefacts (``--profile``): the override, its encoder, and the profiles that a paper's
files share.
"""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped,unused-ignore]

from lightning_cse.config.compose import compose, options, plain_line
from lightning_cse.config.suggestions import no_option
from lightning_cse.errors import ConfigError

SHARED: Final = "profiles.yaml"
"""The file beside a paper's artefacts, with the profiles for artefacts that do not define them."""


def profile_override(profile: str) -> str:
    """Return the override that chooses a profile: ``+profile=small``, or ``+debug=tiny``."""
    groups = [group for group in ("profile", "debug") if profile in options(group)]
    if not groups:
        raise ConfigError([no_option("profile", profile)])
    return f"+{groups[0]}={profile}"


@functools.cache
def profile_encoder(profile: str) -> str | None:
    """Return the encoder that a profile sets; None if it keeps the experiment's encoder."""
    configs = compose("train", profile_override(profile)), compose("train")
    own, default = (str(cfg.hydra.runtime.choices.encoder) for cfg in configs)
    return own if own != default else None


def shared_profiles(path: Path, artefact: Mapping[str, Any]) -> dict[str, Any]:
    """Return the shared profiles for an artefact: only its rows, and no seeds if the artefact lists
    seeds.
    """
    file = path.with_name(SHARED)
    profiles = load_yaml(file) if file.is_file() else {}
    for profile in profiles.values():
        if isinstance(artefact.get("seeds"), list):
            profile.pop("seeds", None)
        profile["rows"] = {
            row: one
            for row, one in profile.get("rows", {}).items()
            if row in artefact.get("rows", {})
        }
    return profiles


def load_yaml(path: Path) -> dict[str, Any]:
    """Return the plain values of a YAML file; raises ConfigError with the path if the file is
    malformed.
    """
    try:
        return dict(OmegaConf.to_container(OmegaConf.load(path), resolve=False))  # type: ignore[arg-type]
    except (OmegaConfBaseException, YAMLError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: {plain_line(error)}"]) from error
