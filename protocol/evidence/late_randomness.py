"""Late randomness: held-out problems and seeds drawn with a value that did not exist at the time of the lock.

The key is HKDF-Extract (RFC 5869, SHA-256) of the value's bytes with the 32 bytes of the lock's digest as
salt. Every number drawn with it is the first 8 bytes, big-endian, of HKDF-Expand with the name of the drawn
quantity ("problems", "seed 0") as info: HMAC(key, name + the byte 1).

The protocol registers the source of the value, `[randomness] source`:

nonce    the auditor writes "<lock digest> <hex>" and a line feed to a file and signs it with the registered
         key (ssh-keygen -Y sign -n kv-prereg-nonce), which cannot be done before the lock
beacon   round `round` of the public beacon `name`, in a file "<round> <hex>" and a line feed
anchor   the hash of the block that the lock's OpenTimestamps proof leads to
local    a random number that `confirm` draws on this machine when it takes the claim, without a network
cited    that of the study whose records this one cites, with the key made of that study's lock: both have the same
         problems and seeds. This study is locked before the other is claimed

The first three prove that the author could not choose the value. A nonce and a block come after the lock, whose digest
they are made of; a beacon's round shows no order by itself, since a lock can name one that is past. `local` proves
less: nothing could be developed on the problems before the lock, since the claim, which the ledger cites before the
first lane, made them; that an author did not claim, look and claim again in a copy, only a witness of the claim shows.

This does not prevent an auditor from signing several nonces for one lock, a round that was public before the
lock, or an author who locks many studies and confirms one.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from protocol.formats.citations import list_cited_locks
from protocol.formats.documents import Document
from protocol.formats.findings import CannotTell
from protocol.formats.refusals import BadInput, Tampered
from protocol.formats.vocabulary import LATE_CITED, RANDOMNESS
from protocol.lock import ssh
from protocol.lock.lock import Lock

LATER_SOURCES = ("nonce", "anchor")  # somebody else than the author makes the value, out of the lock's digest
WITHOUT_FILE = ("anchor", "local", "cited")  # sources whose value nobody passes
CITED = LATE_CITED
VALUE_BYTES = 32  # of a local value
NAMESPACE = "kv-prereg-nonce"  # of the auditor's signature
FIELD = RANDOMNESS


class Block(Protocol):
    """A block of a public chain; hash: lower-case hex, as block explorers print it."""

    @property
    def height(self) -> int: ...

    @property
    def hash(self) -> str: ...


def derive_key(lock_digest: str, value: str) -> str:
    """Return the key from the lock's digest and the value; all three are in hex."""
    return _hmac(bytes.fromhex(lock_digest), bytes.fromhex(value)).hex()


def draw_number(key: str, name: str) -> int:
    """Return the number drawn under `name`, from 0 to 2**64 - 1."""
    return int.from_bytes(_hmac(bytes.fromhex(key), name.encode() + b"\x01")[:8])


def draw_seed(key: str | None, label: int) -> int:
    """Return the seed for the registered seed `label`; without a key, `label` itself."""
    return label if key is None else draw_number(key, f"seed {label}")


def draw_value(locked: Lock, file: Path | None, block: Callable[[], Block] | None = None) -> dict[str, Any] | None:
    """Return the claim's entry of the late value; None where the protocol registers none, or that of a cited study.

    The entry has source, value, key, and a nonce's signature or a block's height. file: see the module.
    block: returns the block of the lock's proof. Raises BadInput when the required one is missing or
    unusable, and for a file that is not required; also what `block` raises.
    """
    registered = _registered_section(locked)
    if file is not None and (registered is None or registered["source"] in WITHOUT_FILE):
        reason = "no [randomness]" if registered is None else f'source = "{registered["source"]}"'
        raise BadInput(f"--value {file}: the protocol has {reason}, so no late value is needed; leave --value out")
    if registered is None or registered["source"] == CITED:
        return None
    if registered["source"] == "anchor":
        if block is None:
            raise BadInput("randomness: needs the Bitcoin block of the lock's proof; run: kv-prereg anchor")
        chain_block = block()
        entry: dict[str, Any] = {"value": chain_block.hash, "height": chain_block.height}
    elif registered["source"] == "local":
        entry = {"value": secrets.token_hex(VALUE_BYTES)}
    elif registered["source"] == "beacon":
        entry = {"value": _read_value(locked, registered, file)}
    else:
        value = _read_value(locked, registered, file)
        entry = {"value": value, "signature": _read_signature(locked, registered, value, Path(f"{file}.sig"))}
    return {"source": registered["source"], "key": derive_key(locked.digest, entry["value"]), **entry}


def claim_key(locked: Lock, claim: Document) -> str | None:
    """Recompute the key of a claim and return it; None where nothing is drawn late.

    Raises Tampered when the claim has another key, none although one is registered, or one although none is.
    """
    registered, entry = _registered_section(locked), claim.content.get(FIELD)
    if registered is None and entry is None:
        return None
    if registered is None or not isinstance(entry, dict) or entry.get("source") != registered["source"]:
        raise Tampered(f"claim.json: {FIELD}: has a source other than the one that the protocol registers")
    drawn_for = min(list_cited_locks(locked.content)) if registered["source"] == CITED else locked.digest
    if not _is_value(entry.get("value")) or entry.get("key") != derive_key(drawn_for, entry["value"]):
        raise Tampered(f"claim.json: {FIELD}.key: does not follow from the lock and the value")
    return str(entry["key"])


def shows_order(locked: Lock, claim: Document, signers: Path | None) -> bool:
    """Return whether the late value, once verified, shows that the lock came before the results: the block of a proof
    of the lock, or a nonce whose key the auditor's list allows to sign for NAMESPACE by name (`namespaces=`) and that
    is not the key of the lock. A round of a beacon may be older than the lock.
    """
    registered, signature = _registered_section(locked) or {}, claim.content.get(FIELD, {}).get("signature")
    if registered.get("source") != "nonce" or registered["auditor"] == locked.content.get("signer"):
        return registered.get("source") == "anchor"
    if signers is None or not isinstance(signature, str):
        return False
    line = _line(locked, registered, claim.content[FIELD]["value"]).encode()
    return ssh.find_principal(signers, NAMESPACE, line, signature, must_name=True) is not None


def verify(locked: Lock, claim: Document, block: Callable[[], Block] | None = None, file: Path | None = None) -> str:
    """Verify the late value of a claim and return a summary. file: the round of a beacon, as the auditor looked it up.

    Raises Tampered when it is wrong, CannotTell where only external records can show it; also what `block` raises.
    """
    if claim_key(locked, claim) is None:
        return "the author chose the seeds: the protocol registers no late value"
    registered, entry = _registered_section(locked) or {}, claim.content[FIELD]
    if registered["source"] == "nonce":
        line = _line(locked, registered, entry["value"]).encode()
        if not ssh.is_signed_by(registered["auditor"], NAMESPACE, line, str(entry.get("signature"))):
            raise Tampered(f"claim.json: {FIELD}.signature: is not the registered auditor's signature for this lock")
        return "seeds and problems drawn with a nonce that the registered auditor signed for this lock"
    if registered["source"] == CITED:
        return "seeds and problems drawn by the claim of the cited study, which came after this lock"
    if registered["source"] == "local":
        return (
            "seeds and problems drawn on the author's machine when the claim was taken; no outside record shows "
            "that they were drawn only once"
        )
    if registered["source"] == "beacon":
        if file is None:
            raise CannotTell(
                f"compare round {registered['round']} of {registered['name']} with {entry['value']}, and pass "
                "the round that you looked up: --value FILE"
            )
        if _read_value(locked, registered, file) != entry["value"]:
            raise Tampered(f"claim.json: {FIELD}.value: differs from round {registered['round']} in {file}")
        return (
            f"seeds and problems drawn with round {registered['round']} of {registered['name']}, which the "
            "auditor looked up"
        )
    if block is None:
        raise CannotTell(f"compare the hash of block {entry.get('height')} with {entry['value']}")
    chain_block = block()
    if (chain_block.height, chain_block.hash) != (entry.get("height"), entry["value"]):
        raise Tampered(
            f"claim.json: {FIELD}.value: differs from the hash of block {chain_block.height}, which the proof names"
        )
    return f"seeds and problems drawn with the hash of block {chain_block.height}, to which the lock's proof leads"


def _registered_section(locked: Lock) -> Mapping[str, Any] | None:
    section: Mapping[str, Any] | None = locked.content["protocol"]["content"].get(FIELD)
    return section


def _line(locked: Lock, registered: Mapping[str, Any], value: str) -> str:
    """Return the expected content of the file with the value."""
    prefix = locked.digest if registered["source"] == "nonce" else registered["round"]
    return f"{prefix} {value}\n"


def _read_value(locked: Lock, registered: Mapping[str, Any], file: Path | None) -> str:
    """Read the value from a file with one line of two words."""
    line = _line(locked, registered, "HEX").strip()
    if file is None:
        how = f"sign it (ssh-keygen -Y sign -n {NAMESPACE} -f KEY FILE)"
        who = (
            f"ask the auditor to write '{line}' to FILE and {how}"
            if registered["source"] == "nonce"
            else f"write '{line}' to FILE, with the value of that round of {registered['name']}"
        )
        raise BadInput(f"randomness: needs a value that was made after the lock; {who}, then pass --value FILE")
    try:
        text = file.read_bytes().decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"--value {file}: could not be read: {error}") from None
    prefix, _, value = text.removesuffix("\n").partition(" ")
    if not _is_value(value) or text != f"{prefix} {value}\n":
        raise BadInput(f"--value {file}: write one line, '{line}', where HEX is at least 64 lower-case hex digits")
    if text != _line(locked, registered, value):
        raise BadInput(f"--value {file}: was made for {prefix}; this study needs '{line}'")
    return value


def _is_value(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"(?:[0-9a-f]{2}){32,}", value) is not None


def _read_signature(locked: Lock, registered: Mapping[str, Any], value: str, path: Path) -> str:
    try:
        signature = path.read_bytes().decode("ascii")
        line = _line(locked, registered, value).encode()
        is_signed = ssh.is_signed_by(registered["auditor"], NAMESPACE, line, signature)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"{path}: could not be read: {error}; signing FILE creates it, which the auditor must do"
        ) from None
    except CannotTell as undetermined:
        raise BadInput(f"{path}: {undetermined}") from None
    if not is_signed:
        raise BadInput(f"{path}: is not the registered auditor's signature of that line for the namespace {NAMESPACE}")
    return signature


def _hmac(secret: bytes, message: bytes) -> bytes:
    return hmac.new(secret, message, hashlib.sha256).digest()
