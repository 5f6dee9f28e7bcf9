"""An HTTP server of objects with entity tags and ranges, which fails as planned and counts what it serves."""

import contextlib
import hashlib
import re
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest


@dataclass(frozen=True)
class Request:
    path: str
    query: str
    begin: int | None
    end: int | None
    condition: str | None
    """Value of If-Match or If-Unmodified-Since."""
    authorization: str = ""


@dataclass(frozen=True)
class Fault:
    """What happens to one request for data: a status; or the first bytes and then the end of the connection.

    `stall`: the connection stays open instead, and silent, for this number of seconds.
    `body`: text of an answer whose status is an error.
    `announced`: whether the answer announces all bytes, or as few as it sends.
    """

    status: int = 206
    cut: int | None = None
    announced: bool = True
    stall: float = 0.0
    body: str = ""


@dataclass
class Objects:
    """What a server has, what it was asked for, and what is to go wrong."""

    url: str = ""
    contents: dict[str, bytes] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    """Entity tags other than the digest of the content; "" for none."""
    times: dict[str, str] = field(default_factory=dict)
    """Value of Last-Modified, where the server sends it."""
    claimed: dict[str, int] = field(default_factory=dict)
    """Size that the server claims, where it is not that of the content."""
    headers: dict[str, dict[str, str]] = field(default_factory=dict)
    """Further headers of the answers for a name, also of redirects."""
    redirects: dict[str, str] = field(default_factory=dict)
    """URL to which the server redirects requests for a name."""
    ranges: bool = True
    faults: deque[Fault] = field(default_factory=deque)
    """One for each of the next requests for more than a byte."""
    refusal: Fault | None = None
    """The answer to every request."""
    on_request: Callable[[Request], None] | None = None
    """Called before each answer."""
    on_data: Callable[[Request], None] | None = None
    """Called before each answer to a request for more than a byte."""
    requests: list[Request] = field(default_factory=list)
    served: int = 0
    """Bytes of content that were sent."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    ended: threading.Event = field(default_factory=threading.Event)
    """Set at the end, for answers that are waiting."""

    def put(self, name: str, content: bytes) -> str:
        """Add or replace an object, and return its URL."""
        self.contents[name] = content
        return f"{self.url}/{name}"

    def tag_of(self, name: str) -> str:
        return self.tags[name] if name in self.tags else f'"{hashlib.md5(self.contents[name]).hexdigest()}"'

    def count(self, nbytes: int) -> None:
        """Add to `served`; several connections do."""
        with self.lock:
            self.served += nbytes

    @property
    def asked(self) -> int:
        """Number of bytes that the requests for more than a byte asked for."""
        return sum(
            one.end - one.begin + 1 for one in self.data_requests if one.begin is not None and one.end is not None
        )

    @property
    def data_requests(self) -> list[Request]:
        """The requests for more than a byte."""
        return [one for one in self.requests if (one.begin, one.end) != (0, 0)]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects: Objects

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET(with_body=False)

    def do_GET(self, *, with_body: bool = True) -> None:
        parts = urlsplit(self.path)
        name = unquote(parts.path).lstrip("/")
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        begin, end = (int(found[1]), int(found[2])) if found else (None, None)
        condition = self.headers.get("If-Match") or self.headers.get("If-Unmodified-Since")
        request = Request(name, parts.query, begin, end, condition, self.headers.get("Authorization", ""))
        self.objects.requests.append(request)
        if self.objects.on_request is not None:
            self.objects.on_request(request)
        if name in self.objects.redirects:
            self.refuse(302, Location=self.objects.redirects[name])
            return
        if self.objects.refusal is not None:
            self.refuse(self.objects.refusal.status, self.objects.refusal.body.encode() if with_body else b"")
            return
        is_data = with_body and (begin, end) != (0, 0)
        if is_data and self.objects.on_data is not None:
            self.objects.on_data(request)
        fault = self.objects.faults.popleft() if is_data and self.objects.faults else Fault()
        if fault.status not in (200, 206):
            self.refuse(fault.status, fault.body.encode())
        elif name not in self.objects.contents:
            self.refuse(404)
        elif self.headers.get("If-Match") not in (None, self.objects.tag_of(name)):
            self.refuse(412)
        else:
            self.send(name, request, fault, with_body=with_body)

    def send(self, name: str, request: Request, fault: Fault, *, with_body: bool) -> None:
        content = self.objects.contents[name]
        body = content
        if request.begin is not None and request.end is not None and self.objects.ranges:
            if request.begin >= len(content):
                self.refuse(416)
                return
            body = content[request.begin : request.end + 1]
        sent = body if fault.cut is None else body[: fault.cut]
        announced = body if fault.announced else sent
        if with_body:
            self.objects.count(len(sent))  # before the client has the header, and looks
        if request.begin is not None and self.objects.ranges:
            self.send_response(206)
            last = request.begin + len(announced) - 1
            size = self.objects.claimed.get(name, len(content))
            self.send_header("Content-Range", f"bytes {request.begin}-{last}/{size}")
        else:
            self.send_response(200)
        if self.objects.tag_of(name):
            self.send_header("ETag", self.objects.tag_of(name))
        if name in self.objects.times:
            self.send_header("Last-Modified", self.objects.times[name])
        self.send_more(name)
        self.send_header("Content-Length", str(len(announced)))
        self.end_headers()
        if with_body:
            self.wfile.write(sent)
        if fault.stall:
            self.objects.ended.wait(fault.stall)
        if len(sent) < len(announced):
            self.close_connection = True

    def send_more(self, name: str) -> None:
        for header, value in self.objects.headers.get(name, {}).items():
            self.send_header(header, value)

    def refuse(self, status: int, body: bytes = b"", **fields: str) -> None:
        self.send_response(status)
        for header, value in fields.items():
            self.send_header(header, value)
        self.send_more(unquote(urlsplit(self.path).path).lstrip("/"))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self.open: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self.open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.open.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        """End the connections that are open still: nothing reports a client whose host is gone."""
        for one in list(self.open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def handle_error(self, *_: object) -> None:
        """Clients that end in the middle of an answer are part of the tests."""


@contextlib.contextmanager
def serving(address: str = "127.0.0.1") -> Iterator[Objects]:
    """Give a server with no objects yet, on an address of this machine."""
    found = Objects()
    server = Server((address, 0), type("Handler", (Handler,), {"objects": found}))
    found.url = f"http://{address}:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield found
    finally:
        found.ended.set()
        server.shutdown()
        thread.join()
        server.end_connections()
        server.server_close()


@pytest.fixture
def objects() -> Iterator[Objects]:
    """Give a server on loopback, with no objects yet."""
    with serving() as found:
        yield found
