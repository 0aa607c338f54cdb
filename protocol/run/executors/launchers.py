"""The launchers of workers on clusters, one entry each; nothing else names one. Without torch."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from protocol.formats.refusals import BadInput
from protocol.run.executors import ray_launcher, slurm_launcher
from protocol.run.executors.settings import Settings
from protocol.run.executors.spool_driver import Launcher


class LauncherKind(NamedTuple):
    """start: (folder of the spool, settings, workers, CPUs and GPUs of each) -> the launcher. refuse_missing:
    raises if it cannot start workers here. wait: seconds within which some worker has to begin.
    """

    start: Callable[[Path, Settings, int, int, int], Launcher]
    refuse_missing: Callable[[Settings], None]
    wait: float


LAUNCHERS: Mapping[str, LauncherKind] = MappingProxyType(
    {
        "slurm": LauncherKind(slurm_launcher.SlurmLauncher, slurm_launcher.refuse_missing, slurm_launcher.WAIT_SECONDS),
        "ray": LauncherKind(ray_launcher.RayLauncher, ray_launcher.refuse_missing, ray_launcher.WAIT_SECONDS),
    }
)


def refuse_unavailable(settings: Settings, device: str) -> None:
    """Raise BadInput for another kind of device than the registered, and as the launcher's `refuse_missing` does."""
    for name in settings.devices:
        if name.partition(":")[0] != device:
            raise BadInput(
                f'--devices {name}: the protocol registers the device "{device}"; name only devices of this kind'
            )
    if settings.kind in LAUNCHERS:
        LAUNCHERS[settings.kind].refuse_missing(settings)
