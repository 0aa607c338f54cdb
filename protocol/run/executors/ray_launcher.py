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
from pathlib import Path
from typing import Any

from protocol.formats.refusals import Refusal
from protocol.run.executors.settings import Settings
from protocol.run.executors.spool_driver import WorkerExit

TRIES = 3  # to start a cluster here: Ray gives its processes 30 s, and a busy machine needs more
WAIT_SECONDS = 600.0  # seconds; other jobs may hold all CPUs of a cluster for ever


def refuse_missing(settings: Settings) -> None:
    """Raises ModuleNotFoundError without Ray."""
    if find_spec("ray") is None:
        raise ModuleNotFoundError("no module named 'ray'", name="ray")


class RayLauncher:
    """A launcher on Ray. cpus, gpus: of a worker. Without an address it starts a cluster on this machine that
    is large enough for `count` workers and ends with `stop`, or with this process.
    """

    def __init__(self, folder: Path, settings: Settings, count: int, cpus: int, gpus: int) -> None:
        command = [sys.executable, "-P", "-m", __name__]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        answer = self._ask({"address": settings.ray, "count": count, "cpus": cpus, "gpus": gpus})
        if answer is None or "refused" in answer:
            address, reason = settings.ray or "this machine", (answer or {}).get("refused", "it ended")
            self.stop()
            raise Refusal(f"executor: no Ray cluster at {address}: {reason}")

    def start(self, commands: Mapping[int, Sequence[str]]) -> None:
        self._ask({"start": {str(slot): list(command) for slot, command in commands.items()}})

    def states(self) -> Mapping[int, WorkerExit | None] | None:
        answer = self._ask({"states": True})
        if answer is None or "refused" in answer:
            return None
        return {int(slot): None if message is None else WorkerExit(message) for slot, message in answer.items()}

    def status_command(self) -> str:
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

    def _ask(self, question: Mapping[str, Any]) -> dict[str, Any] | None:
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


def serve_requests() -> None:
    """Run in the process that imports Ray until its input ends."""
    import os
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver ends it, not Ctrl-C
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Ray's own output is not an answer
    # For a cluster started here: workers keep the normal priority, since they are the machine's purpose.
    os.environ.setdefault("RAY_worker_niceness", "0")
    import ray

    def send(reply: Mapping[str, Any]) -> None:
        answers.write(json.dumps(reply) + "\n")
        answers.flush()

    settings = json.loads(sys.stdin.readline())
    local_options = {"num_cpus": settings["count"] * settings["cpus"], "include_dashboard": False}
    for tries_left in reversed(range(TRIES)):
        try:
            ray.init(
                address=settings["address"] or "local",
                log_to_driver=False,
                logging_level="ERROR",
                **({} if settings["address"] else local_options),
            )
            break
        except Exception as error:  # Ray's errors, grpc's, the system's
            ray.shutdown()
            if settings["address"] or not tries_left:
                return send({"refused": " ".join(str(error).split())[:300]})
    run_command = ray.remote(subprocess.run).options(
        num_cpus=settings["cpus"], num_gpus=settings["gpus"], max_retries=0
    )
    refs: dict[str, Any] = {}
    send({})
    for line in sys.stdin:
        question = json.loads(line)
        for slot, command in question.get("start", {}).items():
            refs[slot] = run_command.remote(command, capture_output=True, text=True)
        try:
            send({slot: _exit_message(ray, ref) for slot, ref in refs.items()})
        except Exception as error:  # the cluster is lost
            send({"refused": " ".join(str(error).split())[:300]})
    for ref in refs.values():
        with suppress(Exception):  # already ended
            ray.cancel(ref, force=True)
    ray.shutdown()


def _exit_message(ray: Any, ref: Any) -> str | None:
    """Return the last message of a task that ended; None for one that waits or runs."""
    done, _ = ray.wait([ref], timeout=0)
    if not done:
        return None
    try:
        process = ray.get(ref)
    except ray.exceptions.RayError as error:
        return " ".join(str(error).split())[:300]
    lines = [line.strip() for line in process.stderr.splitlines() if line.strip()]
    return lines[-1][:300] if lines else f"status {process.returncode}"


if __name__ == "__main__":
    serve_requests()
