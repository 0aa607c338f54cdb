"""A time-stamping authority (RFC 3161), which signs when it saw the digest. Uses `openssl`."""

import http.client
import os
import re
import subprocess
import urllib.request
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar, NamedTuple

from protocol.evidence.external.anchors import Attestation, Unproven
from protocol.formats.programs import run_program
from protocol.formats.refusals import Tampered

TIMEOUT = 60  # for one answer of the authority, or one run of openssl
MAX_ANSWER_BYTES = 1 << 20  # of an answer; a time stamp with its certificates has some thousands


class _Stamp(NamedTuple):
    digest: str
    time: datetime


@dataclass(frozen=True)
class Authority:
    """A witness that asks `url` and trusts only what `ca` (a file of PEM certificates) certifies."""

    url: str | None = None
    ca: Path | None = None

    name: ClassVar[str] = "rfc3161"
    suffix: ClassVar[str] = "tsr"

    def stamp(self, digest: str) -> bytes:
        if not self.url or not self.url.startswith(("http://", "https://")):
            raise Unproven("name an authority, http:// or https://, with --tsa URL")
        # No nonce: it guards against replayed answers, but an old answer about this digest proves more.
        query = _openssl("ts", "-query", "-digest", digest, "-sha256", "-cert", "-no_nonce").stdout
        request = urllib.request.Request(self.url, query, {"Content-Type": "application/timestamp-query"})
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
                return bytes(answer.read(MAX_ANSWER_BYTES))
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise Unproven(f"{self.url} does not answer: {error}") from None

    def verify(self, digest: str, proof: bytes) -> Attestation:
        """Verify a time stamp, whose time is the authority's.

        Its certificates have to be valid at that time, not today, since proofs outlive certificates.
        """
        with TemporaryDirectory() as scratch:
            answer, token = Path(scratch, "answer"), Path(scratch, "token")
            answer.write_bytes(proof)
            # Only the token is signed; the rest of the answer is not.
            if _openssl("ts", "-reply", "-in", answer, "-token_out", "-out", token).returncode:
                raise Tampered("not an RFC 3161 response that grants a time stamp")
            stamp = _read(token)
            if stamp.digest != digest:
                raise Tampered(f"a time stamp for the digest {stamp.digest}, which is not this document's")
            _check_signature(token)
            if self.ca is None:
                raise Unproven("signed by an authority that is not trusted here; name its certificate with --ca")
            _check_trust(token, stamp, self.ca)
        time = stamp.time.strftime("%Y-%m-%dT%H:%M:%SZ")
        return Attestation(time, time, int(stamp.time.timestamp()))


def _read(token: Path) -> _Stamp:
    text = _openssl("ts", "-reply", "-in", token, "-token_in", "-text").stdout.decode(errors="replace")
    algorithm = re.search(r"^Hash Algorithm: (\S+)$", text, re.MULTILINE)
    message = re.search(r"^Message data:\n((?: +[0-9a-f]{4} - .*\n)+)", text, re.MULTILINE)
    time = re.search(r"^Time stamp: (\w{3}) +(\d+) ([\d:]{8})(?:\.\d+)? (\d{4}) GMT$", text, re.MULTILINE)
    if not (algorithm and message and time and algorithm[1] == "sha256"):
        raise Tampered("not a time stamp of a SHA-256 digest")
    hexadecimal = (line.split(" - ", 1)[1][:48] for line in message[1].splitlines())  # drops the text column
    digest = "".join(re.findall(r"[0-9a-f]{2}", " ".join(hexadecimal)))
    return _Stamp(digest, datetime.strptime(" ".join(time.groups()), "%b %d %H:%M:%S %Y").replace(tzinfo=UTC))


def _check_signature(token: Path) -> None:
    """Raise Tampered unless the token has a valid signature, by anyone."""
    result = _openssl("cms", "-verify", "-noverify", "-binary", "-inform", "DER", "-in", token)
    if b"signer certificate not found" in result.stderr:
        raise Unproven("does not contain the certificate that signed it")
    if result.returncode:
        raise Tampered("the signature does not belong to this time stamp")


def _check_trust(token: Path, stamp: _Stamp, ca: Path) -> None:
    seconds = str(int(stamp.time.timestamp()))
    command = ("ts", "-verify", "-digest", stamp.digest, "-token_in", "-in", token)
    result = _openssl(*command, "-CAfile", ca, "-attime", seconds)
    if result.returncode == 0:
        return
    output = result.stdout + result.stderr
    if b"Verification: FAILED" not in output or b"Error loading file" in output:
        raise Unproven(f"openssl finds no certificate in {ca}, or is too old to check a time stamp")
    if b"certificate verify error" in output:
        raise Unproven(f"signed by an authority that {ca} does not vouch for; name its certificate with --ca")
    raise Tampered("the time stamp does not verify against the certificate that signed it")


def _openssl(*arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    settings = {"PATH": os.environ.get("PATH", os.defpath)}
    return run_program(["openssl", *arguments], error=Unproven, environment=settings, timeout=TIMEOUT)
