"""The tools of an attacker who knows this project, and the assertions that a test makes of what came of it."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import studies

from protocol.evidence import ledger, records
from protocol.evidence.shard_writer import ShardWriter
from protocol.formats import canonical, documents


class Repository:
    """A git repository whose commands do not depend on whose machine this is."""

    def __init__(self, root: Path):
        self.root = root

    def git(self, *arguments: str, **environment: str) -> str:
        names = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "PATH": "/usr/bin:/bin"}
        identity = ("-c", "user.name=Author", "-c", "user.email=author@example.org")
        command = ["git", *identity, *arguments]
        done = subprocess.run(command, cwd=self.root, env=names | environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def commit(self, message: str, date: str = "2026-11-21T12:00:00Z") -> None:
        self.git("add", "--all", "--force")
        self.git("commit", "--quiet", "-m", message, GIT_AUTHOR_DATE=date, GIT_COMMITTER_DATE=date)


def repository(study: Path) -> Repository:
    return Repository(study.parent.parent)


def findings(study: Path, *options: object) -> dict[str, dict[str, str]]:
    """What `kv-prereg audit --json` says, by item."""
    report = json.loads(studies.here("audit", study, "--json", *options).stdout)
    return {finding["item"]: finding for finding in report["findings"]}


def assert_audit_names(study: Path, item: str, words: str) -> None:
    """Audit ends with status 3, calls the verdict INVALID, and its finding on `item` names what was done."""
    done = studies.ran(3, "audit", study, "--details")
    assert "INVALID" in done.stdout
    failed = [line for line in done.stdout.splitlines() if line.startswith("failed")]
    assert any(line.split()[1] == f"{item}:" and words in line for line in failed), done.stdout


def assert_refused(status: int, words: str, act: str, study: Path, *options: object, tree: Path | None = None) -> None:
    """The command ends with `status` and one line that holds `words`, and changes no byte of the folder.

    tree: the source tree in which it is typed.
    """
    with studies.unchanged(study):
        studies.refused(status, words, act, study, *options, tree=tree)


def rewrite(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Edit a document and leave it canonical."""
    content = documents.read(path).content
    change(content)
    path.write_bytes(canonical.dumps(content) + b"\n")


def rewrite_records(study: Path, change: Callable[[list[Any]], None]) -> None:
    """Edit the records and mend every digest in their shard."""
    place = study / records.FOLDERS["confirm"]
    found = records.read_records(place)
    change(found)
    (place / "shard-0.jsonl").unlink()
    with ShardWriter(place) as shard:
        shard.append([(record["body"], record["costs"]) for record in found])


def rewrite_ledger(study: Path, change: Callable[[list[tuple[str, dict[str, Any]]]], None]) -> None:
    """Edit the ledger and mend its chain."""
    lines = [(entry.event, entry.body) for entry in ledger.read(study)]
    change(lines)
    (study / ledger.NAME).unlink()
    for event, body in lines:
        ledger.append(study, event, body)
