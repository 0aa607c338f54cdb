"""An instance of sigstore of its own: a certificate authority, a log of certificates and a log of signatures, as
RFC 6962 and the specification of the public one lay down their bytes.
"""

import base64
import hashlib
import json
import struct
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

IDENTITY, ISSUER = "author@example.org", "https://login.example.org"
NOW = datetime.now(UTC).replace(microsecond=0)  # of the certificates; openssl stamps with the clock too
SHA256 = ec.ECDSA(hashes.SHA256())
ORIGIN = "log.example.org"


def b64(data):
    return base64.b64encode(data).decode()


def spki(key):
    return key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def log_id(key):
    return hashlib.sha256(spki(key)).digest()


def new_key():
    return ec.generate_private_key(ec.SECP256R1())


class Instance:
    def __init__(self):
        self.root_key, self.ct_key, self.log_key = new_key(), new_key(), new_key()
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "an authority")])
        self.root = self._certificate(self.root_key, self.name, days=3650).sign(self.root_key, hashes.SHA256())
        self.stamp_authorities = []

    def _certificate(self, key, subject, *, days=0, leaf=()):
        own = x509.SubjectKeyIdentifier.from_public_key(self.root_key.public_key())
        builder = (
            x509.CertificateBuilder(self.name, subject, key.public_key(), x509.random_serial_number())
            .not_valid_before(NOW - timedelta(days=days))
            .not_valid_after(NOW + timedelta(days=days, minutes=50))
        )
        usage = dict.fromkeys(
            ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "crl_sign"), False
        ) | {"encipher_only": False, "decipher_only": False}
        if not leaf:
            builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            builder = builder.add_extension(own, critical=False)
        else:
            builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
            builder = builder.add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own), critical=False
            )
        signs = x509.KeyUsage(digital_signature=bool(leaf), key_cert_sign=not leaf, **usage)
        builder = builder.add_extension(signs, critical=True)
        for extension, critical in leaf:
            builder = builder.add_extension(extension, critical=critical)
        return builder

    def certify(self, key, identity, issuer):
        """A certificate of ten minutes, which the log of certificates has signed for (RFC 6962, section 3.2)."""
        names = x509.SubjectAlternativeName([x509.RFC822Name(identity)])
        vouches = x509.UnrecognizedExtension(ObjectIdentifier("1.3.6.1.4.1.57264.1.1"), issuer.encode())
        builder = self._certificate(key, x509.Name([]), leaf=[(names, True), (vouches, False)])
        body = builder.sign(self.root_key, hashes.SHA256()).tbs_certificate_bytes
        milliseconds = int(NOW.timestamp() * 1000)
        entry = log_id(self.root_key) + len(body).to_bytes(3, "big") + body
        signature = self.ct_key.sign(struct.pack("!BBQH", 0, 0, milliseconds, 1) + entry + b"\0\0", SHA256)
        promise = b"\0" + log_id(self.ct_key) + struct.pack("!QHBBH", milliseconds, 0, 4, 3, len(signature)) + signature
        listed = struct.pack("!HH", len(promise) + 2, len(promise)) + promise
        octets = b"\x04" + (bytes([len(listed)]) if len(listed) < 128 else b"\x81" + bytes([len(listed)])) + listed
        promises = x509.UnrecognizedExtension(ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2"), octets)
        return builder.add_extension(promises, critical=False).sign(self.root_key, hashes.SHA256())

    def sign(self, digest, *, identity=IDENTITY, issuer=ISSUER, seconds=60):
        """A bundle of the digest: the log has two entries, of which the second is this one, `seconds` after NOW."""
        key = new_key()
        certificate = self.certify(key, identity, issuer)
        signature = key.sign(bytes.fromhex(digest), ec.ECDSA(utils.Prehashed(hashes.SHA256())))
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        spec = {
            "data": {"hash": {"algorithm": "sha256", "value": digest}},
            "signature": {"content": b64(signature), "publicKey": {"content": b64(pem)}},
        }
        body = json.dumps({"apiVersion": "0.0.1", "kind": "hashedrekord", "spec": spec}, separators=(",", ":")).encode()
        other, leaf = hashlib.sha256(b"\0other").digest(), hashlib.sha256(b"\0" + body).digest()
        root = hashlib.sha256(b"\1" + other + leaf).digest()
        note = f"{ORIGIN}\n2\n{b64(root)}\n"
        signed_note = b64(log_id(self.log_key)[:4] + self.log_key.sign(note.encode(), SHA256))
        time = int(NOW.timestamp()) + seconds
        promised = {"body": b64(body), "integratedTime": time, "logID": log_id(self.log_key).hex(), "logIndex": 1}
        promise = self.log_key.sign(json.dumps(promised, separators=(",", ":")).encode(), SHA256)
        return {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {
                "certificate": {"rawBytes": b64(certificate.public_bytes(serialization.Encoding.DER))},
                "tlogEntries": [
                    {
                        "logIndex": "1",
                        "logId": {"keyId": b64(log_id(self.log_key))},
                        "kindVersion": {"kind": "hashedrekord", "version": "0.0.1"},
                        "integratedTime": str(time),
                        "inclusionPromise": {"signedEntryTimestamp": b64(promise)},
                        "inclusionProof": {
                            "logIndex": "1",
                            "rootHash": b64(root),
                            "treeSize": "2",
                            "hashes": [b64(other)],
                            "checkpoint": {"envelope": f"{note}\n\u2014 {ORIGIN} {signed_note}\n"},
                        },
                        "canonicalizedBody": b64(body),
                    }
                ],
            },
            "messageSignature": {
                "messageDigest": {"algorithm": "SHA2_256", "digest": b64(bytes.fromhex(digest))},
                "signature": b64(signature),
            },
        }

    def trusted_root(self):
        """What an auditor has of this instance: trusted_root.json."""
        since = {"start": "2020-01-01T00:00:00Z"}

        def log(key):
            public = {"rawBytes": b64(spki(key)), "keyDetails": "PKIX_ECDSA_P256_SHA_256", "validFor": since}
            logged = {"baseUrl": f"https://{ORIGIN}", "hashAlgorithm": "SHA2_256", "publicKey": public}
            return logged | {"logId": {"keyId": b64(log_id(key))}}

        def authority(certificates):
            raw = [{"rawBytes": b64(each.public_bytes(serialization.Encoding.DER))} for each in certificates]
            subject = {"organization": "o", "commonName": "an authority"}
            return {"subject": subject, "uri": "https://x", "certChain": {"certificates": raw}, "validFor": since}

        return {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [log(self.log_key)],
            "certificateAuthorities": [authority([self.root])],
            "ctlogs": [log(self.ct_key)],
            "timestampAuthorities": [authority(each) for each in self.stamp_authorities],
        }
