"""The first request of an HTTP URL: what its answer reports about the object, and where it may be redirected to.

obstore follows redirects by itself. This request goes through the standard library, which passes on each redirect
before it is followed.
"""

from __future__ import annotations

import base64
import errno
import ipaddress
import re
import socket
from datetime import UTC
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import unquote, urljoin
from urllib.request import HTTPRedirectHandler, Request, build_opener

if TYPE_CHECKING:
    from datetime import datetime
    from http.client import HTTPMessage

__all__ = ["first_answer"]

_MAX_REDIRECTS = 5
_TIMEOUT_S = 10.0
_HTTP = re.compile(r"(https?)://(?:([^/?#]*)@)?(\[[^]/?#]*\]|[^:/?#]*)", re.IGNORECASE)
"""Scheme, user with password, and host of a URL."""


def first_answer(url: str, shown: str) -> tuple[int, str | None, datetime | None] | None:
    """Return size, entity tag and time of the object of an HTTP URL; None if there is no answer that reports a size.

    PermissionError, which names `shown`, if the server redirects to where it may not.
    """
    found = _HTTP.match(url)
    if found is None or not url.isascii() or re.search(r"[\s\x00-\x1f]", url):
        return None
    user, bare = found[2], f"{url[: found.start(3)].removesuffix(f'{found[2]}@')}{url[found.start(3) :]}"
    request = Request(bare.partition("#")[0], headers={"Range": "bytes=0-0", "User-Agent": "onecopy"})  # noqa: S310
    if user:
        request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(unquote(user).encode()).decode()}")
    try:
        with build_opener(_Redirects(shown)).open(request, timeout=_TIMEOUT_S) as answer:
            return _facts(answer.status, answer.headers)
    except PermissionError:
        raise
    except (HTTPException, OSError, ValueError, ArithmeticError) as error:
        if isinstance(error, HTTPError):
            error.close()
        return None


def _facts(status: int, headers: HTTPMessage) -> tuple[int, str | None, datetime | None] | None:
    time = headers["Last-Modified"]
    if status == 206:
        size = re.fullmatch(r"bytes 0-\d+/(\d{1,19})", headers.get("Content-Range", ""))
    else:
        size = re.fullmatch(r"(\d{1,19})", headers.get("Content-Length", ""))
    modified = parsedate_to_datetime(time) if time else None
    if modified is not None:
        modified = modified.replace(tzinfo=modified.tzinfo or UTC).astimezone(UTC)
    return None if size is None else (int(size[1]), headers["ETag"], modified)


class _Redirects(HTTPRedirectHandler):
    max_repeats = max_redirections = _MAX_REDIRECTS + 1

    def __init__(self, shown: str) -> None:
        self._shown, self._count = shown, 0

    def http_error_302(self, req: Request, fp: Any, code: int, msg: str, headers: HTTPMessage) -> Any:
        """Follow a redirect; PermissionError if it may not be followed."""
        before, after = _HTTP.match(req.full_url), _HTTP.match(urljoin(req.full_url, headers.get("Location", "")))
        self._count += 1
        reason = None
        if before is None or after is None:
            reason = "to another protocol"
        elif before[1].lower() == "https" != after[1].lower():
            reason = "from https to http"
        elif before[3] != after[3] and (near := _near(after[3]) - _near(before[3])):
            reason = f"to a {min(near)} address"
        elif self._count > _MAX_REDIRECTS:
            reason = f"more than {_MAX_REDIRECTS} times"
        if reason:
            fp.close()
            raise PermissionError(errno.EACCES, f"the server redirects {reason}, which is refused", self._shown)
        return super().http_error_302(req, fp, code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def _near(host: str) -> set[str]:
    """Return which addresses a host has that other machines do not reach: "link-local", "loopback"."""
    bare = host.strip("[]").partition("%")[0]
    try:
        found = {bare} if ":" in bare else {one[4][0] for one in socket.getaddrinfo(bare, None)}
        addresses = [ipaddress.ip_address(one) for one in found]
    except (OSError, ValueError):
        return set()  # perhaps a proxy knows it
    addresses = [getattr(one, "ipv4_mapped", None) or one for one in addresses]
    kinds = {"link-local" for one in addresses if one.is_link_local}
    return kinds | {"loopback" for one in addresses if one.is_loopback or one.is_unspecified}
