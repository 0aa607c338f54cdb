"""Check, before anything is claimed or registered, that these settings can run the study; without torch."""

from protocol.formats.refusals import BadInput
from protocol.run.executors.launchers import LAUNCHERS
from protocol.run.executors.settings import Settings


def refuse_unavailable(settings: Settings, device: str) -> None:
    """Raise BadInput for another kind of device than the registered, and as the launcher's `refuse_missing` does."""
    for name in settings.devices:
        if name.partition(":")[0] != device:
            raise BadInput(f'--devices {name}: the protocol registers the device "{device}"; name those')
    if settings.kind in LAUNCHERS:
        LAUNCHERS[settings.kind].refuse_missing(settings)
