"""A real Slurm of one node on this machine, in a folder: munged, slurmctld, slurmd, started and ended."""

import contextlib
import ctypes
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

PLACES = "/usr/sbin:/usr/local/sbin:" + os.environ.get("PATH", os.defpath)
NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "sinfo")
MISSING = [name for name in NEEDED if shutil.which(name, path=PLACES) is None]

LIBC = ctypes.CDLL(None)

CONF = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait=5
InactiveLimit=0
SchedulerParameters=sched_interval=2,batch_sched_delay=0,defer_batch
JobRequeue=1
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=2048 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def ended_with_this_process() -> None:
    """However it ends: prctl(PR_SET_PDEATHSIG), so that no daemon stays where a test run is killed."""
    LIBC.prctl(1, signal.SIGTERM)


def free_port() -> int:
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        return own.getsockname()[1]


@contextlib.contextmanager
def cluster(folder: Path, cpus: int = 2) -> Iterator[Path]:
    """Gives the path of its slurm.conf, for SLURM_CONF. folder: a short path, since it holds a socket."""
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(64))
    key.chmod(0o600)
    conf = folder / "slurm.conf"
    user = pwd.getpwuid(os.getuid()).pw_name
    ports = {"controller": free_port(), "node": free_port()}
    host = socket.gethostname().partition(".")[0]
    conf.write_text(CONF.format(host=host, user=user, folder=folder, cpus=cpus, **ports))
    environment = {**os.environ, "PATH": PLACES, "SLURM_CONF": str(conf)}
    places = {"socket": "munge.socket", "key-file": "munge.key", "log-file": "munged.log"}
    places |= {"pid-file": "munged.pid", "seed-file": "munged.seed"}
    munged = ["munged", "--foreground", "--force", *(f"--{name}={folder / to}" for name, to in places.items())]
    commands = (munged, ["slurmctld", "-D", "-f", str(conf)], ["slurmd", "-D", "-f", str(conf)])
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            log = (folder / f"{command[0]}.out").open("wb")
            daemons.append(
                subprocess.Popen(
                    [shutil.which(command[0], path=PLACES), *command[1:]],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    preexec_fn=ended_with_this_process,
                )
            )
            log.close()
            wait_for(lambda: (folder / "munge.socket").exists(), folder)
        wait_for(lambda: idle(environment), folder)
        yield conf
    finally:
        subprocess.run(["scancel", "--me"], env=environment, capture_output=True, timeout=60)
        time.sleep(1)
        for daemon in reversed(daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(daemon.pid, signal.SIGKILL)
                daemon.wait()


def idle(environment: dict[str, str]) -> bool:
    done = subprocess.run(["sinfo", "-h", "-o", "%t"], env=environment, capture_output=True, text=True)
    return done.stdout.strip() in ("idle", "mix", "alloc")


def wait_for(ready, folder: Path, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > until:
            said = "\n".join(
                f"{path.name}: {path.read_text()[-1500:]}" for path in sorted(folder.glob("*.[lo][ou][gt]"))
            )
            raise AssertionError(f"this Slurm does not start:\n{said}")
        time.sleep(0.2)
