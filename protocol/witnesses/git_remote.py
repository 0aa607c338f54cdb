"""A git remote with an append-only branch, on which each commit adds a digest.

It proves that the digest is on the branch, and the order of digests, if its operator is trusted not to
rewrite it. It proves no time: authors choose the dates of their commits.
"""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from protocol.evidence.external.anchors import BRANCH, Attestation, Unproven
from protocol.formats import canonical
from protocol.formats.programs import last_error_line, run_program
from protocol.formats.refusals import Tampered

MAX_PUSHES = 3  # attempts, in case others push at the same time

_MESSAGE = "Anchor a digest"
_IDENTITY = {"NAME": "kv-prereg", "EMAIL": "kv-prereg@localhost"}  # the proof does not depend on who pushed


@dataclass(frozen=True)
class GitRemote:
    """A witness that pushes to and trusts `branch` of `url`.

    Without `url` it contacts no remote: a proof could name a remote of its author, which proves nothing.
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
            for _ in range(MAX_PUSHES):
                tip = self._fetch(repository)
                if commit := _find_commit(repository, tip, digest):
                    break
                commit = _commit(repository, tip, digest)
                pushed = _run(repository, "push", "--", self.url, f"{commit}:refs/heads/{self.branch}")
                if pushed.returncode == 0:
                    break
            else:
                raise Unproven(f"{self.url} does not accept a commit on {self.branch}: {last_error_line(pushed)}")
        return canonical.dumps({"remote": self.url, "branch": self.branch, "commit": commit}) + b"\n"

    def verify(self, digest: str, proof: bytes) -> Attestation:
        content = canonical.loads(proof.removesuffix(b"\n"), "the proof")
        if not isinstance(content, dict) or content.keys() != {"remote", "branch", "commit"}:
            raise Tampered("must have the fields remote, branch and commit, and no others")
        commit = str(content["commit"])
        if not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", commit):
            raise Tampered(f"{commit!r} is not a commit")
        where = f"{content['branch']} at {content['remote']}"
        if (content["remote"], content["branch"]) != (self.url, self.branch):
            raise Unproven(
                f"commit {commit[:10]} of {where}; if you trust this remote, name it with --remote and --branch"
            )
        with TemporaryDirectory() as scratch:
            repository = Path(scratch)
            _git(repository, "init", "--quiet", "--bare", ".")
            tip = self._fetch(repository)
            if tip is None or _run(repository, "merge-base", "--is-ancestor", commit, tip).returncode:
                raise Tampered(f"commit {commit[:10]} is no longer on {where}: the branch was rewritten")
            if _run(repository, "cat-file", "blob", f"{commit}:{digest}").stdout != f"{digest}\n".encode():
                raise Tampered(f"commit {commit[:10]} of {where} does not contain the digest of this document")
            first_commit = _git(repository, "log", "--format=%H", "--full-history", commit, "--", digest)
            if first_commit != commit:  # otherwise a proof could forge the order by naming a later commit
                raise Tampered(f"commit {commit[:10]} of {where} is not the first one with the digest")
            order = int(_git(repository, "rev-list", "--count", commit))
        return Attestation(f"commit {commit[:10]} of {where}", None, order)

    def _fetch(self, repository: Path) -> str | None:
        """Fetch the branch and return its tip; None when the remote has no such branch."""
        assert self.url
        name = f"refs/heads/{self.branch}"
        result = _run(repository, "ls-remote", "--", self.url, name)
        if result.returncode:
            raise Unproven(f"{self.url} does not answer: {last_error_line(result)}")
        if not result.stdout:
            return None
        fetch_result = _run(repository, "fetch", "--quiet", "--no-tags", "--", self.url, f"+{name}:{name}")
        if fetch_result.returncode:
            raise Unproven(f"{self.url} does not answer: {last_error_line(fetch_result)}")
        return _git(repository, "rev-parse", name)


def _find_commit(repository: Path, tip: str | None, digest: str) -> str | None:
    """Return the commit up to `tip` that added the digest (its proof may have been lost), or None."""
    if tip is None:
        return None
    output = _git(repository, "log", "--format=%H", "--diff-filter=A", tip, "--", digest)
    return output.splitlines()[-1] if output else None


def _commit(repository: Path, tip: str | None, digest: str) -> str:
    """Create a commit after `tip` that adds the file <digest>, and return its id."""
    blob = _git(repository, "hash-object", "-w", "--stdin", data=f"{digest}\n".encode())
    _git(repository, "read-tree", *([tip] if tip else ["--empty"]))
    _git(repository, "update-index", "--add", "--cacheinfo", f"100644,{blob},{digest}")
    tree = _git(repository, "write-tree")
    return _git(repository, "commit-tree", "-m", _MESSAGE, *(["-p", tip] if tip else []), tree)


def _git(repository: Path, *arguments: str, data: bytes = b"") -> str:
    """Run git and return its output. Raises Unproven when it fails: the fault is then git's."""
    result = _run(repository, *arguments, data=data)
    if result.returncode:
        raise Unproven(f"git {arguments[0]} failed: {last_error_line(result)}")
    return result.stdout.decode().strip()


def _run(repository: Path, *arguments: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run git on the bare `repository`, ignoring the surrounding repository and settings, without prompts."""
    settings = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    settings |= {f"GIT_{role}_{field}": _IDENTITY[field] for role in ("AUTHOR", "COMMITTER") for field in _IDENTITY}
    settings |= {"GIT_DIR": str(repository), "GIT_TERMINAL_PROMPT": "0"}
    settings |= {"GIT_ASKPASS": "true", "SSH_ASKPASS": "true", "GIT_SSH_COMMAND": "ssh -o BatchMode=yes"}
    command = ["git", "-c", f"core.hooksPath={os.devnull}", *arguments]
    return run_program(command, error=Unproven, environment=settings, data=data, folder=repository)
