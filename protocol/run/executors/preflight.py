"""Check, before anything is claimed or registered, that these settings can run the study; without torch."""

from protocol.formats.refusals import BadInput
from protocol.run.executors import ray_launcher, slurm_launcher
from protocol.run.executors.settings import Settings

__all__ = ["refuse_unavailable"]


def refuse_unavailable(settings: Settings, device: str) -> None:
    """Raise BadInput for a device of another kind than the registered `device`, and as
    `slurm_launcher.refuse_missing` and `ray_launcher.refuse_missing` do.
    """
    for name in settings.devices:
        if name.partition(":")[0] != device:
            raise BadInput(f'--devices {name}: the protocol registers the device "{device}"; name those')
    if settings.kind == "slurm":
        slurm_launcher.refuse_missing(settings)
    if settings.kind == "ray":
        ray_launcher.refuse_missing()
