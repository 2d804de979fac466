"""Timestamp authorities made by openssl, and a server on the loopback that can misbehave."""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

REPLY_TYPE = "application/timestamp-reply"

_CONFIGURATION = """
[req]
distinguished_name = name
[name]
[ca]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign
[tsa]
basicConstraints = critical,CA:FALSE
extendedKeyUsage = critical,timeStamping
[mail]
basicConstraints = critical,CA:FALSE
extendedKeyUsage = critical,emailProtection
[service]
serial = serial
crypto_device = builtin
signer_cert = {signer}.pem
signer_key = {signer}.key
signer_digest = sha256
default_policy = 1.2.3.4.1
other_policies = 1.2.3.4.2
digests = sha256, sha512
accuracy = secs:1
ordering = no
tsa_name = no
ess_cert_id_chain = no
ess_cert_id_alg = sha256
{more}
"""


@dataclass(frozen=True)
class Authority:
    """A CA and the timestamp certificate that it issued."""

    folder: Path

    @property
    def certificate(self) -> Path:
        return self.folder / "ca.pem"

    def openssl(self, *arguments: str) -> bytes:
        done = subprocess.run(
            ["openssl", *arguments], cwd=self.folder, capture_output=True, check=True
        )
        return done.stdout

    def configure(self, signer: str = "tsa", more: str = "") -> str:
        path = self.folder / f"{signer}{len(more)}.cnf"
        path.write_text(_CONFIGURATION.format(signer=signer, more=more))
        return path.name

    def issue(self, name: str, purpose: str, *, serial: int = 7, days: str = "30") -> None:
        """Make `name.key` unless it is there, and `name.pem` for that purpose."""
        settings = self.configure()
        if not (self.folder / f"{name}.key").exists():
            curve = ("-pkeyopt", "ec_paramgen_curve:P-256")
            self.openssl("genpkey", "-algorithm", "EC", *curve, "-out", f"{name}.key")
        request = ("-key", f"{name}.key", "-subj", f"/CN={name}", "-config", settings)
        self.openssl("req", "-new", *request, "-out", f"{name}.csr")
        signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-set_serial", str(serial))
        extensions = ("-extfile", settings, "-extensions", purpose, "-days", days)
        self.openssl(
            "x509", "-req", "-in", f"{name}.csr", *signing, *extensions, "-out", f"{name}.pem"
        )

    def answer(self, query: bytes, signer: str = "tsa", more: str = "") -> bytes:
        """Answer a query as `openssl ts -reply` does."""
        (self.folder / "query").write_bytes(query)
        settings = self.configure(signer, more)
        service = ("-config", settings, "-section", "service", "-queryfile", "query")
        self.openssl("ts", "-reply", *service, "-out", "reply")
        return (self.folder / "reply").read_bytes()


def make_authority(folder: Path) -> Authority:
    folder.mkdir(parents=True, exist_ok=True)
    authority = Authority(folder)
    (folder / "serial").write_text("01\n")
    settings = authority.configure()
    curve = ("-pkeyopt", "ec_paramgen_curve:P-256")
    authority.openssl("genpkey", "-algorithm", "EC", *curve, "-out", "ca.key")
    request = ("-key", "ca.key", "-subj", "/CN=ca", "-config", settings, "-extensions", "ca")
    authority.openssl("req", "-x509", "-new", *request, "-days", "30", "-out", "ca.pem")
    authority.issue("tsa", "tsa")
    return authority


class Behaviour:
    """What the server does with a query; tests replace its parts."""

    def __init__(self, reply: Callable[[bytes], bytes]) -> None:
        self.reply = reply
        self.status = 200
        self.headers: dict[str, str] = {"Content-Type": REPLY_TYPE}
        self.pause = 0.0
        self.drip = 0.0
        self.asked: list[tuple[str, dict[str, str], bytes]] = []


@contextlib.contextmanager
def served(behaviour: Behaviour) -> Generator[str, None, None]:
    """Serve on the loopback, and give the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            query = self.rfile.read(int(self.headers["Content-Length"]))
            behaviour.asked.append((self.path, dict(self.headers), query))
            time.sleep(behaviour.pause)
            body = behaviour.reply(query)
            self.send_response(behaviour.status)
            for name, value in behaviour.headers.items():
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(OSError):
                if not behaviour.drip:
                    self.wfile.write(body)
                    return
                for byte in body:
                    self.wfile.write(bytes([byte]))
                    time.sleep(behaviour.drip)

        def log_message(self, format: str, *_: object) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, request: object, client_address: object) -> None:
            """Say nothing: the client went away."""

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/tsr"
        finally:
            server.shutdown()
            thread.join()
