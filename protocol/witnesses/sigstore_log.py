"""A public log of signatures (sigstore): it says when somebody, whom a login vouches for, signed the digest.

The library `sigstore` verifies bundles without a network. Signing needs one and a login: `sigstore sign` does it.
"""

import base64
import json
import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module, resources
from pathlib import Path
from typing import Any, ClassVar

from protocol.evidence.external.anchors import DOCUMENTS, FOLDER, Attestation, Unproven, existing_documents
from protocol.evidence.registration import Registration
from protocol.formats import documents
from protocol.formats.findings import one_line
from protocol.formats.refusals import Tampered

ADVICE = "try --sigstore-root, or a newer library"
# How errors begin that the library has where the root lacks a log of certificates, or all authorities that stamp.
UNKNOWN = ("failed to verify SCT", "no Timestamp Authorities")


@dataclass(frozen=True)
class SigstoreLog:
    """A witness that believes signatures by the identity that the lock of `study` names, in the logs of `root`.

    root: a file trusted_root.json with the keys of authorities and logs; None: those of the public good instance, as
    the installed library has them.
    """

    study: Registration
    root: Path | None = None

    name: ClassVar[str] = "sigstore"
    suffix: ClassVar[str] = "sigstore.json"

    def stamp(self, digest: str) -> bytes:
        """Raise Unproven with the command that signs: a login is the user's own."""
        by_digest = {
            documents.read(self.study.folder / DOCUMENTS[name]).digest: name for name in existing_documents(self.study)
        }
        raise Unproven(f"signing needs your login; run: {format_signing_command(self.study.folder, by_digest[digest])}")

    def verify(self, digest: str, proof: bytes) -> Attestation:
        """Verify a bundle: its signature, its certificate, and the proof that a log includes it.

        The time is the latest that the log or an authority signed. Of several time stamps the library verifies one at
        least and passes over others: a later one proves no less, an earlier one might be forged.
        """
        bundles, hashes, policy = _library("models").Bundle, _library("hashes"), _library("verify.policy")
        registered = self.study.protocol.get("witness", {})
        if registered.get("kind") != self.name:
            raise Unproven("the lock names no signer, since its [witness] is of another kind")
        trusted_root, verifier = self._read_root()
        signer = policy.Identity(identity=registered["identity"], issuer=registered["issuer"])
        hashed = hashes.Hashed(algorithm=hashes.HashAlgorithm.SHA2_256, digest=bytes.fromhex(digest))
        try:
            bundle = bundles.from_json(proof)
            signer.verify(bundle.signing_certificate)
        except Exception as error:  # any error from malformed bytes
            if "mediaType" in str(error) and b"application/vnd.dev.sigstore.bundle" in proof:
                raise Unproven(f"an unknown format: {one_line(error)}; {ADVICE}") from None
            raise Tampered(f"no bundle signed by {registered['identity']}: {one_line(error)}") from None
        content = json.loads(bundle.to_json())
        signed = content.get("messageSignature", {}).get("messageDigest", {}).get("digest")
        if signed and base64.b64decode(signed).hex() != digest:
            raise Tampered("a bundle for another document")
        (entry,) = content["verificationMaterial"]["tlogEntries"]
        promised = [int(entry["integratedTime"])] if "inclusionPromise" in entry and "integratedTime" in entry else []
        try:
            verifier.verify_artifact(hashed, bundle, signer)
        except Exception as error:
            is_known = promised and entry["logId"] in [log["logId"] for log in trusted_root["tlogs"]]
            is_unknown = isinstance(error, _library("errors").CertValidationError) or str(error).startswith(UNKNOWN)
            if is_known and not is_unknown:
                raise Tampered(f"the bundle does not verify: {one_line(error)}") from None
            raise Unproven(f"{one_line(error)}; {ADVICE}") from None
        stamps = bundle.verification_material.timestamp_verification_data
        stamped = [stamp.tst_info.gen_time.timestamp() for stamp in (stamps.rfc3161_timestamps if stamps else [])]
        seconds = math.ceil(max(promised + stamped))
        time = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return Attestation(time, time, seconds)

    def _read_root(self) -> tuple[Mapping[str, Any], Any]:
        """Return the trusted root and a verifier of it."""
        name = "https%3A%2F%2Ftuf-repo-cdn.sigstore.dev/trusted_root.json"
        path = self.root or Path(str(resources.files("sigstore._store").joinpath(name)))
        try:
            trusted_root = _library("models").TrustedRoot.from_file(str(path))
            return json.loads(path.read_bytes()), _library("verify").Verifier(trusted_root=trusted_root)
        except Exception as error:  # any error from a file that is none
            raise Unproven(f"{path} is not a trusted_root.json of sigstore: {one_line(error)[:200]}") from None


def format_signing_command(folder: Path, document: str) -> str:
    """Return the shell command that signs the bytes of a document without its final newline, as its digest has them."""
    file = shlex.quote(str(folder / DOCUMENTS[document]))
    proofs = shlex.quote(str(folder / FOLDER))
    sign = f"sigstore sign --bundle {proofs}/{document}.{SigstoreLog.suffix} {document}.bytes"
    return f'mkdir -p {proofs} && printf %s "$(cat {file})" > {document}.bytes && {sign}'


def _library(part: str) -> Any:
    try:
        return import_module(f"sigstore.{part}")
    except ImportError:
        raise Unproven("the library sigstore is not installed here: pip install '.[sigstore]'") from None
