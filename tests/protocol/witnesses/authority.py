"""A time-stamping authority of its own, made and run with openssl."""

import subprocess
from http.server import BaseHTTPRequestHandler
from pathlib import Path

SETTINGS = """
[tsa]
default_tsa = one
[one]
serial = {folder}/serial
signer_cert = {folder}/tsa.pem
signer_key = {folder}/tsa.key
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256
"""
EXTENSIONS = "keyUsage=critical,digitalSignature\nextendedKeyUsage=critical,{use}\n"
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def openssl(folder: Path, *arguments: str) -> bytes:
    done = subprocess.run(["openssl", *arguments], cwd=folder, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def made(folder: Path, *, use: str = "timeStamping", days: int = 10) -> Path:
    """ca.pem, and a certificate for `use` that it signed for tsa.key."""
    folder.mkdir(parents=True)
    openssl(folder, "req", "-x509", *KEY, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=Some CA")
    openssl(folder, "req", *KEY, "-keyout", "tsa.key", "-out", "tsa.csr", "-subj", "/CN=Some TSA")
    (folder / "extensions").write_text(EXTENSIONS.format(use=use))
    signed = ("-in", "tsa.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "tsa.pem")
    openssl(folder, "x509", "-req", *signed, "-extfile", "extensions", "-days", str(days))
    (folder / "serial").write_text("01\n")
    (folder / "settings").write_text(SETTINGS.format(folder=folder))
    return folder


def reply(folder: Path, query: bytes) -> bytes:
    (folder / "query").write_bytes(query)
    openssl(folder, "ts", "-reply", "-config", "settings", "-queryfile", "query", "-out", "answer")
    return (folder / "answer").read_bytes()


class Handler(BaseHTTPRequestHandler):
    """Answers from `server.folder`, or with `server.instead`."""

    def do_POST(self):
        query = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.headers["Content-Type"] == "application/timestamp-query"
        body = getattr(self.server, "instead", None) or reply(self.server.folder, query)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass
