"""A calendar of OpenTimestamps and a block for it, byte by byte as their formats say, without the library."""

import hashlib
import struct
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

EASY = 0x207FFFFF  # every other hash meets it
HEIGHT = 900000
TIME = 1790000000  # 2026-09-21T14:13:20Z

APPEND, PREPEND, SHA256, ATTESTATION = b"\xf0", b"\xf1", b"\x08", b"\x00"
PENDING, BITCOIN = bytes.fromhex("83dfe30d2ef90c8e"), bytes.fromhex("0588960d73d71901")
SALT, SIBLING = b"s" * 8, b"n" * 32  # what the calendar adds to a digest, and the neighbour in the block


def sha256(data):
    return hashlib.sha256(data).digest()


def number(value):
    """Seven bits a byte, the lowest first; the eighth says that more follow."""
    groups = []
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes([*groups, value])


def sized(data):
    return number(len(data)) + data


def committed(digest):
    return sha256(digest + SALT)


def merkle_root(digest):
    return sha256(sha256(SIBLING + committed(digest)))


def pending(url):
    """What the calendar answers at once."""
    return APPEND + sized(SALT) + SHA256 + ATTESTATION + PENDING + sized(sized(url.encode()))


def in_block(height=HEIGHT):
    """What it answers about the commitment when the block is there."""
    return PREPEND + sized(SIBLING) + SHA256 + SHA256 + ATTESTATION + BITCOIN + sized(number(height))


def complete(digest, height=HEIGHT):
    """A whole proof of `digest` in one path, as a file."""
    magic = b"\x00OpenTimestamps\x00\x00Proof\x00\xbf\x89\xe2\xe8\x84\xe8\x92\x94"
    return magic + b"\x01" + SHA256 + digest + APPEND + sized(SALT) + SHA256 + in_block(height)


def mined(root, bits=EASY):
    """The hex of a header over `root` whose hash meets `bits`."""
    target = (bits & 0x7FFFFF) << 8 * ((bits >> 24) - 3)
    for nonce in range(1 << 32):
        raw = struct.pack("<i32s32sIII", 4, b"p" * 32, root, TIME, bits, nonce)
        if int.from_bytes(sha256(sha256(raw)), "little") <= target:
            return raw.hex()
    raise AssertionError


class Calendar(BaseHTTPRequestHandler):
    def do_POST(self):
        digest = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.digests[committed(digest).hex()] = digest
        self.answer(200, pending(self.server.url))

    def do_GET(self):
        commitment = self.path.rpartition("/")[2]
        known = self.server.mined and commitment in self.server.digests
        self.answer(200, in_block()) if known else self.answer(404, b"Pending confirmation")

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def serve(handler):
    """A server in a thread, on a port of its own; `shutdown` and `server_close` end it."""
    server = HTTPServer(("127.0.0.1", 0), handler)
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    server.digests, server.mined = {}, False
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    return server
