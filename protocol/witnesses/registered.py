"""The witness that a protocol names: `register` asks it to stamp the lock, and goes on where it cannot be reached."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from protocol.evidence.external.anchors import Unproven, Witness
from protocol.evidence.late_randomness import LATER_SOURCES
from protocol.evidence.registration import Registration
from protocol.formats.programs import run_program
from protocol.formats.refusals import BadInput
from protocol.witnesses import stamping
from protocol.witnesses.git_remote import GitRemote
from protocol.witnesses.ots import OpenTimestamps
from protocol.witnesses.rfc3161 import Authority
from protocol.witnesses.sigstore_log import SigstoreLog

FIELD = "witness"  # the table of protocol.toml


def stamp_lock(study: Registration) -> str:
    """Have the registered witness stamp the lock, once, and return a line about it: what it said, or what to do
    before `confirm`. Nothing else is sent anywhere than the digest of the lock.
    """
    table, source = study.protocol.get(FIELD, {}), study.protocol.get("randomness", {}).get("source")
    kind = table.get("kind", "none")
    if kind == "none":
        without = f"no [{FIELD}] is registered, so a CONFIRMED verdict will read CONFIRMED (UNWITNESSED)"
        return "" if source in LATER_SOURCES else without
    option = {"git": " --remote URL", "rfc3161": " --tsa URL"}.get(kind, "")
    command = f"kv-prereg anchor {study.folder} lock --witness {kind}{option}"
    try:
        witness = _make_witness(table, study)
        if not stamping.has_proof(study, "lock", witness):
            stamping.stamp(study, "lock", witness)
    except (Unproven, BadInput) as unreached:
        return f"no witness yet ({' '.join(str(unreached).split())}); before confirm, run: {command}"
    if kind == "ots":
        command = f"kv-prereg anchor {study.folder} --upgrade"
        return f"the lock waits for a Bitcoin block; some hours later, before confirm, run: {command}"
    return f"the lock is witnessed by {kind}; confirm cites the proof"


def find_remote(study: Registration) -> str | None:
    """Return the address of the registered git remote; None without one, or where it is not known here."""
    table = study.protocol.get(FIELD, {})
    try:
        return _remote_url(table["remote"], study.folder) if table.get("kind") == "git" else None
    except Unproven:
        return None


def _make_witness(table: Mapping[str, Any], study: Registration) -> Witness:
    match table["kind"]:
        case "git":
            return GitRemote(_remote_url(table["remote"], study.folder))
        case "rfc3161":
            return Authority(table["authority"])
        case "sigstore":
            return SigstoreLog(study)
        case _:
            return OpenTimestamps()


def _remote_url(name: str, folder: Path) -> str:
    """Return the address of a remote of the repository around the folder; an address stays as it is.

    Raises Unproven without such a remote, and for an address with a password, which a proof would publish.
    """
    url = name
    if re.fullmatch(r"[A-Za-z0-9][\w.-]*", name):
        environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        command = ["git", "-C", str(folder), "remote", "get-url", name]
        result = run_program(command, error=Unproven, environment=environment)
        if result.returncode:
            raise Unproven(f"this repository has no git remote {name}")
        url = result.stdout.decode(errors="replace").strip()
    if re.match(r"[a-z+]+://[^/@]*:[^/@]*@", url, re.IGNORECASE):
        raise Unproven("the address of the remote has a password in it, which a proof would publish")
    is_local = "://" not in url and not re.match(r"[^/]+:", url)
    return str(_repository_root(folder).joinpath(url).resolve()) if is_local else url


def _repository_root(folder: Path) -> Path:
    folder = folder.resolve()
    return next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), folder)
