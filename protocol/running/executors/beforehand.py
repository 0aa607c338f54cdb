"""Check, before anything is claimed or registered, that these settings can run the study; without torch."""

from protocol.evidence.refusals import BadInput
from protocol.running.executors import on_ray, on_slurm
from protocol.running.executors.settings import Settings

__all__ = ["refuse"]


def refuse(settings: Settings, device: str) -> None:
    """Raise BadInput for a device of another kind than the registered `device`, and as
    `slurm_launcher.refuse_missing` and `ray_launcher.refuse_missing` do.
    """
    for name in settings.devices:
        if name.partition(":")[0] != device:
            raise BadInput(f'--devices {name}: the protocol registers the device "{device}"; name those')
    if settings.kind == "slurm":
        on_slurm.refuse_missing(settings)
    if settings.kind == "ray":
        on_ray.refuse_missing()
