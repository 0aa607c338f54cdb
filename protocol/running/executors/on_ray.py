"""Workers as tasks of a Ray cluster: each is a command that a task of Ray runs and waits for.

Ray is asked for places and nothing else: it is given no code of ours, it makes no environment (a runtime_env
would bring bytes that nobody locked), and it repeats nothing (`max_retries=0`): who was lost is replaced by
the driver, which counts.
"""

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from protocol.evidence.refusals import Refusal
from protocol.running.executors.settings import Settings
from protocol.running.executors.spooled import Ended

__all__ = ["WAIT", "OnRay", "refuse_missing"]

WAIT = 600.0  # seconds; what holds all CPUs of a cluster may hold them for ever


def refuse_missing() -> None:
    """Raises ModuleNotFoundError without Ray."""
    import ray  # noqa: F401  whether it is here


class OnRay:
    """cpus, gpus: of a worker. Without an address a cluster of as many as `count` workers need is started on
    this machine, and ended with `stop`.
    """

    def __init__(self, settings: Settings, count: int, cpus: int, gpus: int) -> None:
        import ray

        self._ray, self._refs = ray, dict[int, Any]()
        here = {"num_cpus": count * cpus, "include_dashboard": False} if settings.ray is None else {}
        try:
            ray.init(address=settings.ray or "local", log_to_driver=False, logging_level="ERROR", **here)
        except (ConnectionError, ValueError, RuntimeError, OSError) as refused:
            words = " ".join(str(refused).split())[:300]
            raise Refusal(f"executor: no Ray cluster at {settings.ray or 'this machine'}: {words}") from None
        self._run = ray.remote(subprocess.run).options(num_cpus=cpus, num_gpus=gpus, max_retries=0)

    def start(self, commands: Mapping[int, Sequence[str]]) -> None:
        for slot, command in commands.items():
            self._refs[slot] = self._run.remote(list(command), capture_output=True, text=True)

    def states(self) -> Mapping[int, Ended | None] | None:
        try:
            return {slot: self._state(ref) for slot, ref in self._refs.items()}
        except (ConnectionError, RuntimeError):
            return None

    def _state(self, ref: Any) -> Ended | None:
        done, _ = self._ray.wait([ref], timeout=0)
        if not done:
            return None
        try:
            ran = self._ray.get(ref)
        except self._ray.exceptions.RayError as lost:
            return Ended(" ".join(str(lost).split())[:300])
        lines = [line.strip() for line in ran.stderr.splitlines() if line.strip()]
        return Ended(lines[-1][:300] if lines else f"status {ran.returncode}")

    def look(self) -> str:
        return "ray status"

    def stop(self) -> None:
        for ref in self._refs.values():
            with suppress(Exception):  # it has ended
                self._ray.cancel(ref, force=True)
        self._ray.shutdown()
