"""A SLURM of one machine, for tests: ``python scripts/slurm_cluster.py FOLDER COMMAND...``.

An existing SLURM is used as it is (``sinfo`` answers). Otherwise munged, slurmctld and slurmd are
started from the folder, with a configuration and a key of their own, and stopped at the end; they
are Debian's packages ``slurmd slurmctld munge``, and need root. The folder's configuration is in
SLURM_CONF while the command runs.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

# On other ports than SLURM's own. A requeued job waits as long as credentials live (cred_expire).
CONFIG = """\
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={port}
SlurmdPort={node_port}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=1,sched_interval=2,bf_interval=2
JobRequeue=1
ReturnToService=2
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""
PACKAGES = "install Debian's packages slurmd, slurmctld and munge, and run this as root"
STARTS_WITHIN = 60


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[None]:
    """Provide a SLURM until the end of the block; raise RuntimeError where there can be none."""
    if shutil.which("sinfo") and _ready():
        yield
        return

    path = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
    programs = {name: shutil.which(name, path=path) for name in ("munged", "slurmctld", "slurmd")}
    missing = [name for name, program in programs.items() if program is None]
    if missing or os.geteuid() != 0:
        raise RuntimeError(f"no SLURM answers, and none can be started here: {PACKAGES}")

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = folder.resolve()
    for name in ("state", "spool"):
        (folder / name).mkdir(exist_ok=True)

    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    config = folder / "slurm.conf"
    host = socket.gethostname().partition(".")[0]
    config.write_text(
        CONFIG.format(host=host, folder=folder, port=_free_port(), node_port=_free_port())
    )

    munge = [f"--key-file={key}", f"--socket={folder}/munge.socket", f"--pid-file={folder}/pid"]
    munge += [f"--log-file={folder}/munged.log", f"--seed-file={folder}/seed", "--force"]
    before = os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = str(config)
    daemons = []
    try:
        for name, options in (
            ("munged", ["--foreground", *munge]),
            ("slurmctld", ["-D", "-c"]),
            ("slurmd", ["-D"]),
        ):
            command = [str(programs[name]), *options]
            with (folder / f"{name}.out").open("wb") as out:
                daemons.append(subprocess.Popen(command, stdout=out, stderr=out))

            if name == "munged":
                _wait((folder / "munge.socket").exists, folder)

        _wait(_ready, folder)
        yield
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(timeout=60)

        if before is None:
            del os.environ["SLURM_CONF"]
        else:
            os.environ["SLURM_CONF"] = before


def _ready() -> bool:
    """Whether a node can take a job."""
    process = subprocess.run(
        ["sinfo", "--noheader", "--format=%T"], capture_output=True, text=True, check=False
    )

    return any(state in process.stdout.split() for state in ("idle", "mixed", "allocated"))


def _wait(condition: Callable[[], bool], folder: Path) -> None:
    deadline = time.monotonic() + STARTS_WITHIN
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(
                f"SLURM did not start in {STARTS_WITHIN} s; its logs are in {folder}"
            )

        time.sleep(0.2)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def main() -> int:
    """Run a command with a SLURM, and return its exit code."""
    folder, *command = sys.argv[1:]
    try:
        with cluster(Path(folder)):
            return subprocess.run(command, check=False).returncode
    except RuntimeError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    sys.exit(main())
