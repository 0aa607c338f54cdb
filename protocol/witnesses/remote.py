"""A git remote with a branch that only grows: a commit there holds the digest, and all that came before it.

It proves that the digest is on the branch and in which order digests came, as far as one trusts whoever keeps
the remote not to rewrite it. It proves no time: the dates of commits are whatever their author says.
"""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from protocol.evidence.bytes import canonical
from protocol.evidence.outside.anchors import Unproven, Vouched
from protocol.evidence.refusals import Tampered

__all__ = ["BRANCH", "Remote"]

BRANCH = "kv-prereg-anchors"
SECONDS = 60  # for one run of git, the network included
PUSHES = 3  # tries, when others push at the same time

_MESSAGE = "Anchor a digest"
_NOBODY = {"NAME": "kv-prereg", "EMAIL": "kv-prereg@localhost"}  # the digest speaks, not who pushed it


@dataclass(frozen=True)
class Remote:
    """Pushes to and believes `branch` of `url`; without `url` it asks nobody, since a proof could name any
    remote, and its author's own would prove nothing.
    """

    url: str | None = None
    branch: str = BRANCH

    name: ClassVar[str] = "git"
    suffix: ClassVar[str] = "git.json"

    def stamp(self, digest: str) -> bytes:
        if not self.url:
            raise Unproven("name a remote with --remote URL")
        with TemporaryDirectory() as scratch:
            repository = Path(scratch)
            _git(repository, "init", "--quiet", "--bare", ".")
            for _ in range(PUSHES):
                tip = self._fetch(repository)
                if commit := _held(repository, tip, digest):
                    break
                commit = _commit(repository, tip, digest)
                pushed = _run(repository, "push", "--", self.url, f"{commit}:refs/heads/{self.branch}")
                if pushed.returncode == 0:
                    break
            else:
                raise Unproven(f"{self.url} does not take a commit on {self.branch}: {_last(pushed)}")
        return canonical.dumps({"remote": self.url, "branch": self.branch, "commit": commit}) + b"\n"

    def verify(self, digest: str, proof: bytes) -> Vouched:
        claimed = canonical.loads(proof.removesuffix(b"\n"), "the proof")
        if not isinstance(claimed, dict) or claimed.keys() != {"remote", "branch", "commit"}:
            raise Tampered("needs remote, branch and commit, and nothing else")
        commit = str(claimed["commit"])
        if not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", commit):
            raise Tampered(f"{commit!r} is not a commit")
        where = f"{claimed['branch']} at {claimed['remote']}"
        if (claimed["remote"], claimed["branch"]) != (self.url, self.branch):
            raise Unproven(
                f"commit {commit[:10]} of {where}; who trusts it names it with --remote and --branch"
            )
        with TemporaryDirectory() as scratch:
            repository = Path(scratch)
            _git(repository, "init", "--quiet", "--bare", ".")
            tip = self._fetch(repository)
            if tip is None or _run(repository, "merge-base", "--is-ancestor", commit, tip).returncode:
                raise Tampered(f"commit {commit[:10]} is not on {where} any more: the branch was rewritten")
            if _run(repository, "cat-file", "blob", f"{commit}:{digest}").stdout != f"{digest}\n".encode():
                raise Tampered(f"commit {commit[:10]} of {where} does not hold the digest of this document")
            came = _git(repository, "log", "--format=%H", "--full-history", commit, "--", digest)
            if came != commit:  # an order could be made up by naming a later commit
                raise Tampered(f"commit {commit[:10]} of {where} is not where the digest came first")
            order = int(_git(repository, "rev-list", "--count", commit))
        return Vouched(f"commit {commit[:10]} of {where}", None, order)

    def _fetch(self, repository: Path) -> str | None:
        """The tip of the branch, its history fetched; None when the remote has no such branch."""
        assert self.url
        name = f"refs/heads/{self.branch}"
        listed = _run(repository, "ls-remote", "--", self.url, name)
        if listed.returncode:
            raise Unproven(f"{self.url} does not answer: {_last(listed)}")
        if not listed.stdout:
            return None
        fetched = _run(repository, "fetch", "--quiet", "--no-tags", "--", self.url, f"+{name}:{name}")
        if fetched.returncode:
            raise Unproven(f"{self.url} does not answer: {_last(fetched)}")
        return _git(repository, "rev-parse", name)


def _held(repository: Path, tip: str | None, digest: str) -> str | None:
    """The commit below `tip` that brought the digest: the proof of it may have been lost."""
    if tip is None:
        return None
    brought = _git(repository, "log", "--format=%H", "--diff-filter=A", tip, "--", digest)
    return brought.splitlines()[-1] if brought else None


def _commit(repository: Path, tip: str | None, digest: str) -> str:
    """A commit after `tip` that adds the file <digest>."""
    blob = _git(repository, "hash-object", "-w", "--stdin", data=f"{digest}\n".encode())
    _git(repository, "read-tree", *([tip] if tip else ["--empty"]))
    _git(repository, "update-index", "--add", "--cacheinfo", f"100644,{blob},{digest}")
    tree = _git(repository, "write-tree")
    return _git(repository, "commit-tree", "-m", _MESSAGE, *(["-p", tip] if tip else []), tree)


def _git(repository: Path, *arguments: str, data: bytes = b"") -> str:
    """What git prints. Raises Unproven when it fails: only git itself can be at fault."""
    done = _run(repository, *arguments, data=data)
    if done.returncode:
        raise Unproven(f"git {arguments[0]} failed: {_last(done)}")
    return done.stdout.decode().strip()


def _run(repository: Path, *arguments: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """git on the bare `repository`, blind to the repository and settings around it, never prompting."""
    settings = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    settings |= {f"GIT_{who}_{what}": _NOBODY[what] for who in ("AUTHOR", "COMMITTER") for what in _NOBODY}
    settings |= {"GIT_DIR": str(repository), "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    settings |= {"GIT_ASKPASS": "true", "SSH_ASKPASS": "true", "GIT_SSH_COMMAND": "ssh -o BatchMode=yes"}
    command = ["git", "-c", f"core.hooksPath={os.devnull}", *arguments]
    try:
        return subprocess.run(
            command, cwd=repository, input=data, capture_output=True, env=settings, timeout=SECONDS
        )
    except FileNotFoundError:
        raise Unproven("git is not installed here") from None
    except subprocess.TimeoutExpired:
        raise Unproven(f"git {arguments[0]} did not end within {SECONDS} s") from None


def _last(done: subprocess.CompletedProcess[bytes]) -> str:
    return (done.stderr.decode(errors="replace").strip().splitlines() or ["(no message)"])[-1]
