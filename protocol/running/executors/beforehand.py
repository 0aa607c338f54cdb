"""What cannot run what was registered, before anything is claimed or registered; without torch."""

from protocol.evidence.refusals import BadInput
from protocol.running.executors import on_ray, on_slurm
from protocol.running.executors.settings import Settings

__all__ = ["refuse"]


def refuse(settings: Settings, device: str) -> None:
    """Raises BadInput for a device of another kind, and as `on_slurm.refuse_missing` and
    `on_ray.refuse_missing` do. device: as registered.
    """
    for name in settings.devices:
        if name.partition(":")[0] != device:
            raise BadInput(f'--devices {name}: the protocol registers the device "{device}"; name those')
    if settings.kind == "slurm":
        on_slurm.refuse_missing(settings)
    if settings.kind == "ray":
        on_ray.refuse_missing()
