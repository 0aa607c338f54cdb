"""The held-out guard: it gives access to held-out problems under a claim, and again after the verdict."""

from dataclasses import dataclass
from pathlib import Path

from protocol.evidence import ledger, looks, registration
from protocol.evidence.registration import Registration
from protocol.formats.refusals import AlreadyClaimed, BadInput, Tampered
from protocol.lock.lock import Lock


@dataclass(frozen=True)
class HeldOutGuard:
    """Access to the held-out problems of `lock`, only under the claim in `folder`.

    It can be sent to another process, since every check reads the folder again. identity: a file with the
    private key, where problems are encrypted to a key holder.
    """

    lock: Lock
    folder: Path
    identity: Path | None = None

    def ids(self, task: str, purpose: str) -> tuple[str, ...]:
        """Return the held-out problem ids of `task`, with looks those of the next one, and enter in the ledger that
        they were read, and why.

        Raises BadInput without a claim, Tampered when the claim names another lock, AlreadyClaimed after the seal.
        """
        self.key()
        if task not in self.lock.content["items"]:
            raise BadInput(f"task {task!r} is not in the lock; use one of {sorted(self.lock.content['items'])}")
        if not purpose:
            raise BadInput("purpose: say what the held-out problems are read for")
        ledger.append(self.folder, "held-out", {"task": task, "purpose": purpose})
        return looks.next_problems(Registration.with_lock(self.folder, self.lock), task)

    def key(self) -> str | None:
        """Return the claim's key, with which problems and seeds are drawn; None without late randomness.

        Raises as `ids` does, and Tampered for a key that does not follow from lock and value.
        """
        current = Registration.with_lock(self.folder, self.lock)
        _ = current.claim  # BadInput without one
        if current.has(registration.SEAL):
            raise AlreadyClaimed(f"{self.folder} is sealed; its held-out problems cannot be read again")
        return current.late_key()

    def admit(self, task: str, problem: str) -> str | None:
        """Allow one problem to be built, and return the key.

        Raises as `ids` does, and BadInput for a problem that is not held out by the lock for `task` or whose
        ids were not opened first.
        """
        key = self.key()
        _refuse_unlocked(self.lock, self.folder, task, problem)
        current = Registration.with_lock(self.folder, self.lock)
        if problem not in current.due_items[task]["confirm"]:
            raise BadInput(f"problem {problem!r} of {task}: belongs to a look that has not been reached")
        if task not in (entry.body["task"] for entry in current.entries if entry.event == "held-out"):
            raise BadInput(f"task {task!r}: its held-out ids have not been opened; open them with a purpose first")
        return key


@dataclass(frozen=True)
class JudgedHeldOut:
    """Access to the held-out problems of a study with a verdict, so that an auditor can decode lanes again.

    Every check reads the folder again; nothing is entered in the ledger. identity: as of HeldOutGuard.
    """

    lock: Lock
    folder: Path
    identity: Path | None = None

    def key(self) -> str | None:
        """Return the key as HeldOutGuard.key does.

        Raises BadInput unless the last line of the ledger is a verdict, Tampered when it cites another one.
        """
        current = Registration.with_lock(self.folder, self.lock)
        has_verdict = current.has(registration.SEAL) and current.has(registration.VERDICT)
        if not has_verdict or [entry.event for entry in current.entries[-1:]] != ["verdict"]:
            raise BadInput(f"{self.folder}: has no verdict yet; until then only confirm may read its held-out problems")
        if current.cited_digests(registration.VERDICT) != [current.digest(registration.VERDICT)]:
            raise Tampered(f"{ledger.NAME}: its verdict line cites a different {registration.VERDICT}")
        return current.late_key()

    def admit(self, task: str, problem: str) -> str | None:
        """Allow one problem to be built, and return the key.

        Raises as `key` does, and BadInput for a problem that is not held out by the lock for `task`.
        """
        key = self.key()
        _refuse_unlocked(self.lock, self.folder, task, problem)
        return key


def _refuse_unlocked(lock: Lock, folder: Path, task: str, problem: str) -> None:
    if problem not in lock.content["items"].get(task, {}).get("confirm", ()):
        raise BadInput(f"problem {problem!r} of {task}: is held out, but not by the lock of {folder}")
