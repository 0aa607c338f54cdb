"""Workers as tasks of a Ray cluster: each task runs a command and waits for it.

Ray only allocates resources: it gets no code of ours, makes no environment (a runtime_env would bring bytes
that are not locked), and retries nothing (`max_retries=0`): the driver replaces lost workers and counts them.
Ray is imported in a separate process, which reads a line of JSON and answers with one, because importing it
adds folders to the path that the closure of this process does not have.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

from protocol.evidence.refusals import Refusal
from protocol.running.executors.settings import Settings
from protocol.running.executors.spooled import Ended

__all__ = ["WAIT", "OnRay", "refuse_missing"]

TRIES = 3  # to start a cluster here: Ray gives its processes 30 s, and a busy machine needs more
WAIT = 600.0  # seconds; other jobs may hold all CPUs of a cluster for ever


def refuse_missing() -> None:
    """Raises ModuleNotFoundError without Ray."""
    if find_spec("ray") is None:
        raise ModuleNotFoundError("no module named 'ray'", name="ray")


class OnRay:
    """A launcher on Ray. cpus, gpus: of a worker. Without an address it starts a cluster on this machine that
    is large enough for `count` workers and ends with `stop`, or with this process.
    """

    def __init__(self, settings: Settings, count: int, cpus: int, gpus: int) -> None:
        command = [sys.executable, "-P", "-m", __name__]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        answer = self._asked({"address": settings.ray, "count": count, "cpus": cpus, "gpus": gpus})
        if answer is None or "refused" in answer:
            place, words = settings.ray or "this machine", (answer or {}).get("refused", "it ended")
            self.stop()
            raise Refusal(f"executor: no Ray cluster at {place}: {words}")

    def start(self, commands: Mapping[int, Sequence[str]]) -> None:
        self._asked({"start": {str(slot): list(command) for slot, command in commands.items()}})

    def states(self) -> Mapping[int, Ended | None] | None:
        answer = self._asked({"states": True})
        if answer is None or "refused" in answer:
            return None
        return {int(slot): None if why is None else Ended(why) for slot, why in answer.items()}

    def look(self) -> str:
        return "ray status"

    def stop(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        with suppress(OSError):
            self._process.stdin.close()  # it cancels what runs and exits
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _asked(self, question: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the answer; None if the process, and so the cluster that it started, is gone."""
        assert self._process.stdin
        assert self._process.stdout
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        except (OSError, ValueError):
            return None
        return answer


def serve() -> None:
    """Run in the process that imports Ray until its input ends."""
    import os
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver ends it, not Ctrl-C
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Ray's own output is not an answer
    # For a cluster started here: workers keep the normal priority, since they are the machine's purpose.
    os.environ.setdefault("RAY_worker_niceness", "0")
    import ray

    def answer(said: Mapping[str, Any]) -> None:
        answers.write(json.dumps(said) + "\n")
        answers.flush()

    asked = json.loads(sys.stdin.readline())
    here = {"num_cpus": asked["count"] * asked["cpus"], "include_dashboard": False}
    for left in reversed(range(TRIES)):
        try:
            ray.init(
                address=asked["address"] or "local",
                log_to_driver=False,
                logging_level="ERROR",
                **({} if asked["address"] else here),
            )
            break
        except Exception as refused:  # Ray's errors, grpc's, the system's
            ray.shutdown()
            if asked["address"] or not left:
                return answer({"refused": " ".join(str(refused).split())[:300]})
    run = ray.remote(subprocess.run).options(num_cpus=asked["cpus"], num_gpus=asked["gpus"], max_retries=0)
    refs: dict[str, Any] = {}
    answer({})
    for line in sys.stdin:
        question = json.loads(line)
        for slot, command in question.get("start", {}).items():
            refs[slot] = run.remote(command, capture_output=True, text=True)
        try:
            answer({slot: _ended(ray, ref) for slot, ref in refs.items()})
        except Exception as refused:  # the cluster is lost
            answer({"refused": " ".join(str(refused).split())[:300]})
    for ref in refs.values():
        with suppress(Exception):  # already ended
            ray.cancel(ref, force=True)
    ray.shutdown()


def _ended(ray: Any, ref: Any) -> str | None:
    """Return the last message of a task that ended; None for one that waits or runs."""
    done, _ = ray.wait([ref], timeout=0)
    if not done:
        return None
    try:
        ran = ray.get(ref)
    except ray.exceptions.RayError as lost:
        return " ".join(str(lost).split())[:300]
    lines = [line.strip() for line in ran.stderr.splitlines() if line.strip()]
    return lines[-1][:300] if lines else f"status {ran.returncode}"


if __name__ == "__main__":
    serve()
