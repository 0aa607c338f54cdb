"""Where the batches of a run are executed: chosen per run, in no lock, and without influence on a verdict."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from protocol.formats.refusals import BadInput
from protocol.formats.suggestions import suggest

EXECUTORS = ("local", "slurm", "ray")
# Keys of `--slurm` and submitit's names for them; the key `cluster` selects submitit's executor.
SLURM_OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "partition": "slurm_partition",
        "account": "slurm_account",
        "qos": "slurm_qos",
        "constraint": "slurm_constraint",
        "gres": "slurm_gres",
        "mem": "slurm_mem",
        "time": "timeout_min",
        "cpus": "slurm_cpus_per_task",
        "gpus": "slurm_gpus_per_node",
    }
)
CLUSTERS = ("slurm", "local", "debug")
INTEGER_OPTIONS = ("time", "cpus", "gpus")  # minutes, and counts
_EXECUTOR_OF_OPTION: Mapping[str, str] = MappingProxyType({"devices": "local", "slurm": "slurm", "ray": "ray"})


class ExecutorOptions(argparse.Namespace):
    """The parsed arguments of a command that has `add_options`."""

    executor: str
    workers: int | None
    devices: str | None
    spool: Path | None
    wait: float | None
    slurm: str | None
    ray: str | None


class Settings(NamedTuple):
    """How a run is executed. workers: processes; None means as registered, or one. devices: of this machine,
    one process each. spool: a folder that all machines share; None means inside the study. wait: seconds in
    which some worker has to begin; None means the executor's default. slurm: keys of SLURM_OPTIONS, and
    `cluster`. ray: the address of a running cluster; None starts one here.
    """

    kind: str = "local"
    workers: int | None = None
    devices: tuple[str, ...] = ()
    spool: Path | None = None
    wait: float | None = None
    slurm: tuple[tuple[str, str], ...] = ()
    ray: str | None = None

    def count(self, registered: int | None) -> int:
        """Return the number of processes. registered: the number in the protocol."""
        return len(self.devices) or self.workers or registered or 1


LOCAL = Settings()


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `parse_settings` reads."""
    group = parser.add_argument_group("where it runs (docs/machines.md); no verdict depends on it")
    group.add_argument("--executor", default="local", metavar="KIND", help="local (default), slurm or ray")
    group.add_argument("--workers", type=int, metavar="N", help="number of processes (default: as registered, or 1)")
    group.add_argument("--devices", metavar="LIST", help="cuda:0,cuda:1,...: run one process on each, on this machine")
    group.add_argument(
        "--spool", type=Path, metavar="FOLDER", help="a folder that all machines share (default: in the study)"
    )
    group.add_argument("--wait", type=float, metavar="MINUTES", help="minutes to wait until a worker starts")
    group.add_argument("--slurm", metavar="KEY=VALUE,...", help=f"{', '.join(SLURM_OPTIONS)}, cluster")
    group.add_argument("--ray", metavar="ADDRESS", help="address of a running cluster; without it, one is started here")


def parse_settings(args: ExecutorOptions) -> Settings:
    """Return the settings. Raises BadInput for an option of another executor and for an invalid value."""
    if args.executor not in EXECUTORS:
        raise BadInput(f"--executor {args.executor}: write one of {', '.join(EXECUTORS)}")
    for name, kind in _EXECUTOR_OF_OPTION.items():
        if getattr(args, name) is not None and args.executor != kind:
            raise BadInput(f"--{name}: is allowed only with --executor {kind}; leave it out, or choose that executor")
    if args.spool is not None and args.executor == "local":
        raise BadInput("--spool: processes on one machine need no spool folder; leave it out")
    if args.workers is not None and args.workers < 1:
        raise BadInput(f"--workers {args.workers}: write a whole number of at least 1")
    if args.wait is not None and not 0 < args.wait < float("inf"):
        raise BadInput(f"--wait {args.wait:g}: write a number of minutes above 0")
    devices = () if args.devices is None else tuple(args.devices.split(","))
    for device in devices:
        device_environment(device)
    if devices and args.workers not in (None, len(devices)):
        raise BadInput(
            f"--workers {args.workers}: --devices names {len(devices)} devices, with one process each; leave "
            "--workers out"
        )
    slurm = () if args.slurm is None else tuple(_parse_slurm_option(pair) for pair in args.slurm.split(","))
    if dict(slurm).get("cluster") == "debug" and args.workers not in (None, 1):
        raise BadInput(f"--workers {args.workers}: cluster=debug runs one worker; leave --workers out")
    return Settings(
        kind=args.executor,
        workers=args.workers,
        devices=devices,
        spool=args.spool and args.spool.resolve(),
        wait=args.wait and 60 * args.wait,
        slurm=slurm,
        ray=args.ray,
    )


def device_environment(name: str, visible: str | None = None) -> dict[str, str]:
    """Return the environment variables that let a process see this device alone: none for "cpu"; for "cuda:N"
    the variable that CUDA reads at start. visible: the current CUDA_VISIBLE_DEVICES, in which N is an index.
    """
    kind, _, number = name.partition(":")
    if name == "cpu":
        return {}
    if kind == "cuda" and number.isdecimal() and number == str(int(number)):
        visible_devices = None if visible is None else visible.split(",")
        if visible_devices is not None and int(number) >= len(visible_devices):
            raise BadInput(f"--devices {name!r}: CUDA_VISIBLE_DEVICES has only {visible!r}")
        return {"CUDA_VISIBLE_DEVICES": number if visible_devices is None else visible_devices[int(number)]}
    raise BadInput(f"--devices {name!r}: write cuda:0,cuda:1 and so on, or cpu")


def _parse_slurm_option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if name not in (*SLURM_OPTIONS, "cluster"):
        raise BadInput(f"--slurm {text}: {suggest(name, (*SLURM_OPTIONS, 'cluster'))}")
    if not equals or not value:
        raise BadInput(f"--slurm {text}: write {name}=VALUE")
    if name in INTEGER_OPTIONS and not (value.isdecimal() and int(value)):
        raise BadInput(f"--slurm {text}: write a whole number of at least 1")
    if name == "cluster" and value not in CLUSTERS:
        raise BadInput(f"--slurm {text}: write one of {', '.join(CLUSTERS)}")
    return name, value
