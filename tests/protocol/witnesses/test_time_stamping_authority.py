import hashlib
import subprocess
from datetime import UTC, datetime, timedelta

import authority
import chain_by_hand
import pytest

from protocol.evidence.external.anchors import Unproven
from protocol.formats.refusals import Tampered
from protocol.witnesses import Authority
from protocol.witnesses import rfc3161 as module

DIGEST = hashlib.sha256(b"a lock").hexdigest()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return authority.made(tmp_path_factory.mktemp("authority") / "one")


@pytest.fixture(scope="module")
def server(folder):
    made = chain_by_hand.serve(authority.Handler)
    made.folder = folder
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture(scope="module")
def proof(server):
    return Authority(server.url).stamp(DIGEST)


@pytest.fixture(scope="module")
def ca(folder):
    return folder / "ca.pem"


def test_a_time_stamp_holds_at_the_time_of_its_authority(server, ca):
    before = datetime.now(UTC).replace(microsecond=0)
    vouched = Authority(ca=ca).verify(DIGEST, Authority(server.url).stamp(DIGEST))
    time = datetime.strptime(vouched.time, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    assert before <= time <= datetime.now(UTC)
    assert vouched == (vouched.time, vouched.time, int(time.timestamp()))


def test_openssl_alone_accepts_the_proof(proof, ca, tmp_path):
    (tmp_path / "lock.tsr").write_bytes(proof)
    authority.openssl(
        tmp_path, "ts", "-verify", "-digest", DIGEST, "-in", "lock.tsr", "-CAfile", str(ca)
    )  # fails the test when it does not


def test_without_a_trusted_certificate_nothing_is_told(proof):
    with pytest.raises(Unproven, match="name its certificate with --ca"):
        Authority().verify(DIGEST, proof)


def test_a_time_stamp_without_its_certificate_is_not_told(folder, ca):
    query = authority.openssl(folder, "ts", "-query", "-digest", DIGEST, "-sha256")
    with pytest.raises(Unproven, match="does not contain the certificate"):
        Authority(ca=ca).verify(DIGEST, authority.reply(folder, query))


def test_another_authority_is_not_trusted(proof, tmp_path):
    other = authority.made(tmp_path / "other")
    with pytest.raises(Unproven, match="does not vouch for"):
        Authority(ca=other / "ca.pem").verify(DIGEST, proof)


def test_a_certificate_that_is_not_for_time_stamps_is_not_trusted(tmp_path):
    """openssl refuses to sign with one, so a genuine time stamp is signed anew, as somebody with a web
    server's key would.
    """
    folder = authority.made(tmp_path / "web")
    genuine = authority.openssl(folder, "ts", "-query", "-digest", DIGEST, "-sha256", "-cert")
    (folder / "answer").write_bytes(authority.reply(folder, genuine))
    authority.openssl(folder, "ts", "-reply", "-in", "answer", "-token_out", "-out", "token")
    authority.openssl(
        folder, "cms", "-verify", "-noverify", "-binary", "-inform", "DER", "-in", "token", "-out", "info"
    )
    (folder / "extensions").write_text(authority.EXTENSIONS.format(use="serverAuth"))
    signed = ("-in", "tsa.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-out", "web.pem")
    authority.openssl(folder, "x509", "-req", *signed, "-extfile", "extensions")
    content = ("-econtent_type", "1.2.840.113549.1.9.16.1.4", "-nodetach", "-binary", "-cades")
    signer = ("-signer", "web.pem", "-inkey", "tsa.key")
    authority.openssl(folder, "cms", "-sign", *content, *signer, "-in", "info", "-outform", "DER", "-out", "forged")
    forged = (folder / "forged").read_bytes()
    granted = b"\x30\x03\x02\x01\x00"
    size = len(granted) + len(forged)
    answer = b"\x30\x82" + size.to_bytes(2, "big") + granted + forged
    with pytest.raises(Unproven, match="name its certificate with --ca"):
        Authority().verify(DIGEST, answer)  # well made so far
    with pytest.raises(Unproven, match="does not vouch for"):
        Authority(ca=folder / "ca.pem").verify(DIGEST, answer)


def test_a_proof_outlives_the_certificates(proof, folder, ca, monkeypatch):
    """At any later time openssl by itself refuses; the check is made as of the time of the stamp."""
    later = str(int((datetime.now(UTC) + timedelta(days=60)).timestamp()))
    (folder / "kept.tsr").write_bytes(proof)
    refused = subprocess.run(
        ["openssl", "ts", "-verify", "-digest", DIGEST, "-in", "kept.tsr", "-CAfile", ca, "-attime", later],
        cwd=folder,
        capture_output=True,
    )
    assert b"certificate has expired" in refused.stderr
    asked = []
    run = module._openssl
    monkeypatch.setattr(module, "_openssl", lambda *words: asked.append(words) or run(*words))
    vouched = Authority(ca=ca).verify(DIGEST, proof)
    (at,) = (words[words.index("-attime") + 1] for words in asked if "-attime" in words)
    assert int(at) == vouched.order


def test_a_proof_of_another_digest_fails(proof, ca):
    with pytest.raises(Tampered, match=f"a time stamp for the digest {DIGEST}, which is not this document's"):
        Authority(ca=ca).verify("0" * 64, proof)


@pytest.mark.parametrize("share", [0.35, 0.5, 0.65, 0.8, 0.9, 0.999])
def test_a_changed_byte_is_not_believed(proof, ca, share):
    """In the certificate it shows as one that nobody signed, elsewhere as a forgery."""
    changed = bytearray(proof)
    changed[int(share * len(proof))] ^= 1
    with pytest.raises((Tampered, Unproven)):
        Authority(ca=ca).verify(DIGEST, bytes(changed))


def test_a_changed_signature_shows_without_a_trusted_certificate(proof):
    with pytest.raises(Tampered, match="signature"):
        Authority().verify(DIGEST, proof[:-1] + bytes([proof[-1] ^ 1]))


def test_another_time_is_not_believed(proof, ca):
    year = str(datetime.now(UTC).year).encode()
    assert proof.count(b"\x18\x0f" + year) == 1  # a GeneralizedTime of 15 characters
    with pytest.raises(Tampered, match="signature"):
        Authority(ca=ca).verify(DIGEST, proof.replace(b"\x18\x0f" + year, b"\x18\x0f2020"))


def test_words_around_the_token_say_nothing(proof, ca):
    """The status of an answer is not signed, and could hold text that looks like a time."""
    lie = b"x\nTST info:\nTime stamp: Jan  1 00:00:00 2020 GMT"
    text = b"\x0c" + bytes([len(lie)]) + lie
    status = b"\x02\x01\x00\x30" + bytes([len(text)]) + text
    token = proof[proof.index(b"\x30\x03\x02\x01\x00") + 5 :]
    body = b"\x30" + bytes([len(status)]) + status + token
    answer = b"\x30\x82" + len(body).to_bytes(2, "big") + body
    said = Authority(ca=ca).verify(DIGEST, answer)
    assert said == Authority(ca=ca).verify(DIGEST, proof)


@pytest.mark.parametrize("answer", [b"", b"<html>", b"\x30\x05\x30\x03\x02\x01\x02"])
def test_what_grants_no_time_stamp_is_none(answer):
    """The last is a refusal by the authority: status 2, "rejection"."""
    with pytest.raises(Tampered, match="grants a time stamp"):
        Authority().verify(DIGEST, answer)


@pytest.mark.parametrize("url", [None, "file:///etc/hostname", "127.0.0.1"])
def test_an_authority_is_asked_over_http_only(url):
    with pytest.raises(Unproven, match="--tsa URL"):
        Authority(url).stamp(DIGEST)


def test_an_authority_that_does_not_answer_is_named():
    with pytest.raises(Unproven, match=r"http://127\.0\.0\.1:9 does not answer"):
        Authority("http://127.0.0.1:9").stamp(DIGEST)


def test_a_file_without_certificates_is_named(proof, tmp_path):
    (tmp_path / "empty.pem").write_text("")
    with pytest.raises(Unproven, match=r"no certificate in .*empty\.pem"):
        Authority(ca=tmp_path / "empty.pem").verify(DIGEST, proof)


def test_without_openssl_nothing_is_told(proof, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unproven, match="openssl is not installed"):
        Authority().verify(DIGEST, proof)
