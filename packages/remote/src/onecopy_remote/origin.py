"""`Origin`: an object at a URL. Coroutines read ranges of it with obstore, and `waited` runs them.

obstore follows every redirect. Therefore the first request to an HTTP URL uses the standard library, so that
`_first_answer` can refuse redirects, for example to an address of this machine.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import functools
import hashlib
import ipaddress
import os
import re
import socket
import ssl
import string
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http.client import HTTPException, InvalidURL, responses
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urljoin
from urllib.request import HTTPRedirectHandler, Request, build_opener

from onecopy.errors import FileChanged
from onecopy.store.location import is_offline
from onecopy_remote.steps import answered, in_thread, waited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
    from http.client import HTTPMessage

    from obstore import Bytes

_SIGNATURES = (
    (
        "X-Amz-Algorithm X-Amz-Credential X-Amz-Date X-Amz-Expires X-Amz-SignedHeaders X-Amz-Signature",
        "X-Amz-Security-Token",
    ),
    ("X-Goog-Algorithm X-Goog-Credential X-Goog-Date X-Goog-Expires X-Goog-SignedHeaders X-Goog-Signature", ""),
    ("AWSAccessKeyId Expires Signature", "x-amz-security-token"),
    ("GoogleAccessId Expires Signature", ""),
    ("Key-Pair-Id Expires Signature", ""),
    ("Key-Pair-Id Policy Signature", ""),
    ("sig sv", "saoid scid sdd se ses si sip skoid sks skt sktid ske skv sp spr sr srt ss st suoid"),
)
"""Required and optional query parameters for signing requests to S3, Google Cloud, CloudFront or Azure. If a
required one is missing, all parameters count as part of the content's identity."""
_AWS_IN_ENVIRONMENT = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SKIP_SIGNATURE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
_RETRIES, _RETRY_S = 5, 60
_CLIENT = {"connect_timeout": "10 s", "read_timeout": "60 s", "timeout": "7 days", "pool_max_idle_per_host": "64"}
"""`timeout` limits a whole request, which may take hours on a slow link; `read_timeout` ends a silent connection."""
_CHUNK, _SMALL_CHUNK = 512 << 10, 16 << 10
_CHUNK_S = 30.0
"""Seconds within which each chunk must arrive. Otherwise, the request ends, and the next one uses small chunks."""
_MAX_CONCURRENT = 16
_BAD_REQUEST = "400 Bad Request"
_REFUSALS = {
    "AuthenticationFailed": "check the credentials and the clock of this machine",
    "ExpiredToken": "the credentials have expired",
    "InvalidAccessKeyId": "the access key does not exist",
    "InvalidToken": "the session token is not valid",
    "RequestTimeTooSkewed": "the clock of this machine differs too much from that of the server",
    "SignatureDoesNotMatch": "the secret key does not belong to the access key",
    "TokenRefreshRequired": "the session token must be refreshed",
}
"""Codes with which S3 and Azure reject credentials, some of them with status 400 rather than 403."""
_DIGESTS = (
    ("sha256", "Repr-Digest", r"\bsha-256=:([0-9A-Za-z+/]{43}=):"),
    ("md5", "X-Goog-Hash", r"\bmd5=([0-9A-Za-z+/]{22}==)"),
    ("sha256", "X-Linked-ETag", r'^"?([0-9a-f]{64})"?$'),
)
_ERRNOS = {401: errno.EACCES, 403: errno.EACCES, 404: errno.ENOENT, 407: errno.EACCES, 410: errno.ENOENT}
_ERRNOS |= dict.fromkeys((408, 429), errno.ECONNABORTED)
"""Error numbers, by the status of the first answer. After other statuses from 500 on, the request is retried."""
_LONGEST_TEXT = 4096
_MAX_REDIRECTS = 5
_TIMEOUT_S = 10.0
_HTTP = re.compile(r"(https?)://(?:([^/?#]*)@)?(\[[^]/?#]*\]|[^:/?#]*)", re.IGNORECASE)
"""Scheme, user with password, and host of a URL."""


@dataclass(frozen=True, slots=True)
class Version:
    """The identity of an object's contents at one time."""

    size: int
    """Size in bytes."""
    etag: str | None
    """The entity tag as the server sends it, with quotes, or None if there is none."""
    modified: str | None
    """Time of the last change as text in ISO 8601, or None if the server does not report one."""
    number: str | None
    """Version of the object, if its bucket has versioning."""
    digest: tuple[str, bytes] | None = field(default=None, compare=False)
    """Name of a hash function and the hash of all bytes, or None if the server does not report a hash."""
    asked: str | None = field(default=None, compare=False)
    """Time of the answer if different contents may get the same tag and time of change (`_unsettled`), or None."""

    @classmethod
    def of(cls, meta: Mapping[str, Any]) -> Version:
        """Return the version that metadata from obstore describes."""
        modified: datetime | None = meta.get("last_modified")
        if modified is not None and modified.timestamp() <= 0:  # 1970: the server sent no Last-Modified
            modified = None
        when = modified.isoformat() if modified else None
        tag = meta.get("e_tag") or ""
        tag = tag if re.fullmatch(r"[\x20-\x7e]+", tag) else None  # it becomes a header of requests
        return cls(meta["size"], tag, when, meta.get("version"), meta.get("digest"), meta.get("asked"))

    @property
    def condition(self) -> dict[str, Any]:
        """Options that make a request fail if the content has changed. If-Match does not allow weak tags."""
        if self.asked:
            return {}
        if self.etag and not self.etag.startswith("W/"):
            return {"if_match": self.etag}
        return {"if_unmodified_since": datetime.fromisoformat(self.modified)} if self.modified else {}

    def __str__(self) -> str:
        known = {"etag": self.etag, "modified": self.modified, "version": self.number, "asked": self.asked}
        return ", ".join([*(f"{name} {value}" for name, value in known.items() if value), f"{self.size} bytes"])


class Origin:
    """An object at a URL.

    Credentials come from environment variables, files and instance metadata, as with the provider's own tools. For S3
    without a key in the environment, boto3 finds them if it is installed, including profiles and single sign-on. Raise
    ValueError if the URL does not name an object.
    """

    serves = True
    """False if there is no server, and only nodes have the file."""

    def __init__(self, url: str) -> None:
        import obstore.exceptions
        import obstore.store

        self.shown = shown(url)
        """The URL without user, password and query, for messages and keys."""
        scheme, authority, path, query = _parts(url)
        if not authority.rpartition("@")[2] or "\0" in url:
            raise ValueError(f"{self.shown}: the URL has no host or bucket")
        self.name = name_in(url)
        """The name of the object, which is a valid file name."""
        self._obstore: Any = obstore
        self._is_http = _is_http(url)
        self._url = url.partition("#")[0] if self._is_http else url
        self._query = _content_query(query) if self._is_http else query
        # HTTP: the client is for the whole URL, so that path and query are sent as they are; they may be signed.
        self._root = self._url if self._is_http else f"{scheme}://{authority.rpartition('@')[2]}"
        self._path = "" if self._is_http else path[1:]
        self._clients: dict[str, Any] = {}  # shared with the origins beside this one

    def beside(self, name: str) -> Origin:
        """Return the origin of a file in the same folder. It uses the same client."""
        other = type(self)(beside(self._url, name))
        other._clients = self._clients
        if self._is_http:
            scheme, authority, path, query = _parts(self._url)
            other._root = f"{scheme}://{authority}{path.rpartition('/')[0]}{'?' if query else ''}{query}"
            other._path = name
        return other

    @property
    def _client(self) -> Any:
        if self._root not in self._clients:
            create = self._obstore.store.HTTPStore if self._is_http else self._obstore.store.from_url
            self._clients[self._root] = create(self._root, **_options(self._root))
        return self._clients[self._root]

    async def _get(self, **options: Any) -> Any:
        return await answered(self._obstore.get_async(self._client, self._path, options=options))

    async def version(self) -> Version:
        """Request the current version from the server. In an OSError, ``filename`` is the URL without its query."""
        if self._is_http and (answer := await self._first_answer()):
            if answer.asked is not None and answer.asked == answer.modified:  # a second later, the time is unique
                await asyncio.sleep(1)
                answer = await self._first_answer() or answer
            return answer
        with self._errors():
            try:
                if not self._is_http:
                    return Version.of(await answered(self._obstore.head_async(self._client, self._path)))
            except self._obstore.exceptions.BaseError as error:
                if _status(error) != _BAD_REQUEST:  # an answer to HEAD has no text; one to GET states the reason
                    raise
            return Version.of((await self._get()).meta)

    async def _first_answer(self) -> Version | None:
        """Return the result of `_first_answer`, retrying with increasing time-outs and pauses."""
        begun, attempt = time.monotonic(), 0
        while True:
            attempt += 1
            try:
                return await in_thread(functools.partial(_first_answer, self._url, self.shown, attempt * _TIMEOUT_S))
            except ConnectionError:
                if attempt > _RETRIES or time.monotonic() - begun > _RETRY_S:
                    raise
            await asyncio.sleep(0.1 * 2**attempt)

    def key(self, version: Version) -> str:
        """Return a version's key in a store, without credentials. Raise OSError if changes cannot be detected."""
        if not version.etag and not version.modified:
            raise OSError(
                errno.ENOTSUP,
                "the server sends neither ETag nor Last-Modified, so changes cannot be detected: download the file",
                self.shown,
            )
        return f"{self.key_prefix}{version}"

    @property
    def key_prefix(self) -> str:
        """The beginning of the keys of all versions."""
        query = f", query {hashlib.sha256(self._query.encode()).hexdigest()[:32]}" if self._query else ""
        return f"{self.shown}{query}, "

    async def chunks(
        self, version: Version, part: tuple[int, int] | None = None, *, slow: bool = False
    ) -> AsyncIterator[Bytes]:
        """Yield the bytes of a part (start, stop) or of the whole object, or fewer if the connection ends early.

        `slow` is for connections on which a large chunk did not arrive in time. Raise `FileChanged` if the object has a
        different version now, NotImplementedError if the server cannot send parts of one version, ConnectionError if a
        retry may help, and the same errors as `version`.
        """
        if is_offline():
            raise lacking(self.shown)
        if part and not version.condition:
            raise NotImplementedError("without a strong entity tag or a time, ranges may belong to different versions")
        nbytes = _SMALL_CHUNK if slow else _CHUNK
        with self._errors():
            try:
                answer = await self._get(**{"range": part} if part else {}, **version.condition)
            except self._obstore.exceptions.NotSupportedError as error:
                if part is None:
                    raise
                raise NotImplementedError(_reason(error)) from None
            if (now := Version.of(answer.meta)) != version:
                reason = f"the object changed while it was fetched: from {version} to {now}"
                raise FileChanged(errno.ESTALE, reason, self.shown)
            stream = answer.stream(min_chunk_size=nbytes)
            while True:
                try:
                    async with asyncio.timeout(_CHUNK_S):
                        chunk = await answered(anext(stream))
                except StopAsyncIteration:
                    return
                except TimeoutError:
                    reason = f"the server sent fewer than {nbytes} bytes in {_CHUNK_S:g} s"
                    raise ConnectionError(errno.ETIMEDOUT, reason, self.shown) from None
                yield chunk

    async def names(self) -> list[str]:
        """Return the names of the objects directly below this URL, which must end with "/". For HTTP, raise OSError."""
        if self._is_http:
            raise OSError(errno.ENOTSUP, "HTTP servers do not list folders: pass the URL of a file", self.shown)
        with self._errors():
            found = await answered(self._obstore.list_with_delimiter_async(self._client, self._path))
        return [one["path"].rpartition("/")[2] for one in found["objects"]]

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Replace obstore's errors, whose text may contain a signed URL, with built-in errors that contain `shown`."""
        known = self._obstore.exceptions
        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, _reason(error), self.shown) from None
        except (known.PermissionDeniedError, known.UnauthenticatedError) as error:
            raise PermissionError(errno.EACCES, _reason(error), self.shown) from None
        except known.PreconditionError:
            raise FileChanged(errno.ESTALE, "the object changed while it was fetched", self.shown) from None
        except (known.InvalidPathError, known.NotSupportedError, known.UnknownConfigurationKeyError) as error:
            raise OSError(errno.EINVAL, _reason(error), self.shown) from None
        except known.BaseError as error:
            if _code(error) in _REFUSALS:
                raise PermissionError(errno.EACCES, _reason(error), self.shown) from None
            raise ConnectionError(errno.ECONNABORTED, _reason(error), self.shown) from None
        except ValueError:
            raise ValueError(f"{self.shown}: the URL does not name an object") from None


class NodesOnly(Origin):
    """The origin of a file that only nodes have. Its key is its entity tag."""

    serves = False

    def __init__(self, name: str) -> None:
        self.shown = self.name = name

    def key(self, version: Version) -> str:
        """Return the entity tag."""
        return str(version.etag)

    def chunks(self, *_: object, **__: object) -> AsyncIterator[Bytes]:
        """Raise FileNotFoundError, because there is no server."""
        raise FileNotFoundError(errno.ENOENT, "no node of the cluster has this file any more", self.shown)


def versions_of(origins: Sequence[Origin]) -> list[Version]:
    """Return the current versions of several objects. Raise the same errors as `Origin.version`."""
    if is_offline():
        raise lacking(origins[0].shown)
    limit = asyncio.Semaphore(_MAX_CONCURRENT)

    async def one(origin: Origin) -> Version:
        async with limit:
            return await origin.version()

    async def every() -> list[Version]:
        return await asyncio.gather(*map(one, origins))

    return waited(every())


def lacking(shown: str) -> FileNotFoundError:
    """Return the error for a URL of which the store has no complete copy."""
    reason = "ONECOPY_OFFLINE forbids requests, and the store has no complete copy: run `onecopy fetch` while online"
    return FileNotFoundError(errno.ENOENT, reason, shown)


def _options(url: str) -> dict[str, Any]:
    """Return a client's options: time-outs, plain HTTP if the URL requires it, and credentials of the URL or boto3."""
    client: dict[str, Any] = dict(_CLIENT)
    scheme = url.partition("://")[0].lower()
    if user := _user_of(url):
        client["default_headers"] = {"Authorization": user}  # obstore ignores the user of a URL
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    is_s3 = scheme in ("s3", "s3a")
    if scheme == "http" or (is_s3 and endpoint.startswith("http://")):
        client["allow_http"] = True
    options: dict[str, Any] = {
        "client_options": client,
        "retry_config": {"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_RETRY_S)},
    }
    if is_s3 and not any(name in os.environ for name in _AWS_IN_ENVIRONMENT):
        with contextlib.suppress(ModuleNotFoundError, ValueError):  # ValueError: boto3 finds no credentials either
            from obstore.auth.boto3 import Boto3CredentialProvider

            options["credential_provider"] = Boto3CredentialProvider()
    return options


def _is_http(url: str) -> bool:
    """Return whether a URL may contain a query and escapes. In a bucket URL, the path is a plain object name."""
    return url.partition("://")[0].lower() in ("http", "https")


def _parts(url: str) -> tuple[str, str, str, str]:
    """Split any text into scheme, authority, path and query. Unlike the standard library, raise no errors."""
    scheme, _, rest = url.partition("://")
    query = ""
    if _is_http(url):
        rest, _, query = rest.partition("#")[0].partition("?")
    authority, slash, path = rest.partition("/")
    return scheme, authority, f"{slash}{path}", query or path.partition("?")[2]


def shown(url: str) -> str:
    """Return a URL without user, password, query and fragment, for messages and keys.

    Examples
    --------
    >>> shown("https://me:secret@host/a%20b?X-Amz-Signature=1#x")
    'https://host/a%20b'
    >>> shown("s3://key:secret@bucket/model.npy"), shown("ftp://me:secret@host/x"), shown("http://me:secret/@host/x")
    ('s3://bucket/model.npy', 'ftp://host/x', 'http://.../@host/x')
    """
    if "://" not in url:
        return re.sub(r"[^/]*@", "...@", url)
    scheme, authority, path, _ = _parts(url)
    host = authority.rpartition("@")[2]
    named = re.fullmatch(r"(\[[0-9A-Fa-f:.%]+\]|[^:\[\]]*)(:\d+)?", host)
    return f"{scheme}://{host if named else '...'}{path.partition('?')[0]}"


def name_in(url: str) -> str:
    """Return the name of the object at a URL, or "index" if its name is not a valid file name."""
    name = _parts(url)[2].rpartition("/")[2]
    name = unquote(name) if _is_http(url) else name
    return name if name not in ("", ".", "..") and "/" not in name and "\0" not in name else "index"


def beside(url: str, name: str) -> str:
    """Return the URL of a file in the same folder as a URL. For HTTP, keep the query, which may be signed."""
    if not _is_http(url):
        return f"{url.rpartition('/')[0]}/{name}"
    scheme, authority, path, query = _parts(url)
    return f"{scheme}://{authority}{path.rpartition('/')[0]}/{quote(name)}{'?' if query else ''}{query}"


def _content_query(query: str) -> str:
    """Return the part of a query that selects the content, without any complete set of signing parameters.

    Examples
    --------
    >>> _content_query("sv=2024-11-04&id=7&sig=x&se=2026-01-01"), _content_query("sv=1&id=7"), _content_query("se=1")
    ('id=7', 'sv=1&id=7', 'se=1')
    """
    pairs = [(unquote(pair.partition("=")[0]), pair) for pair in query.split("&")]
    names = {name for name, _ in pairs}
    signing: set[str] = set()
    for required, possible in _SIGNATURES:
        if names.issuperset(required.split()):
            signing.update(required.split(), possible.split())
    return "&".join(pair for name, pair in pairs if name not in signing)


def _status(error: object) -> str:
    """Return the HTTP status in an error, such as "404 Not Found", or "" if there is no status."""
    found = re.search(r"status code: (\d{3}[^:\n]*)", str(error))
    return found[1].strip() if found else ""


def _code(error: object) -> str:
    """Return the code in the XML text of an answer, such as "AccessDenied", or "" if there is no code."""
    found = re.search(r"<Code>([A-Za-z0-9.]{1,60})</Code>", str(error))
    return found[1] if found else ""


def _reason(error: object) -> str:
    """Extract the server's or network's message from the text of an obstore error, without URLs."""
    if status := _status(error):
        code = _code(error)
        more = f" ({code}{': ' + _REFUSALS[code] if code in _REFUSALS else ''})" if code else ""
        return f"the server answered {status}{more}"
    line = str(error).split("\n", 1)[0].strip()
    cause = re.findall(r'(?:message|error): "([^"]*)"', str(error))  # the last one belongs to the innermost error
    text = cause[-1] if cause else line.rpartition(" - ")[2]
    return re.sub(r"\b[a-z0-9]+://\S+", "...", text).strip(" :,") or type(error).__name__


# --- the first request of HTTP ----------------------------------------------------------------------------------------


def _first_answer(url: str, shown: str, timeout: float, part: str = "bytes=0-0") -> Version | None:
    """Return the version of the object at an HTTP URL, or None if only obstore may know the server's certificate.

    Raise PermissionError for a redirect that is refused, and ConnectionError if a retry may help; their ``filename`` is
    `shown`. A signed URL only allows GET, so the first byte is requested instead of using HEAD.
    """
    redirects = _Redirects(shown)
    try:
        with build_opener(redirects).open(_request(url, part), timeout=timeout) as answer:
            is_part, headers = answer.status == 206, answer.headers
    except PermissionError:  # a redirect was refused
        raise
    except HTTPError as error:
        with error:
            if error.code == 416 and part:  # an empty object has no first byte
                return _first_answer(url, shown, timeout, "")
            raise _refusal(error, shown) from None
    except (InvalidURL, ValueError, ArithmeticError):
        raise ValueError(f"{shown}: the URL does not name an object") from None
    except (HTTPException, OSError) as error:
        cause = getattr(error, "reason", error)
        if isinstance(cause, ssl.SSLCertVerificationError):
            return None
        reason = getattr(cause, "strerror", None) or _reason(cause)
        raise ConnectionError(errno.ECONNABORTED, reason, shown) from None
    return _version(is_part, headers, redirects.digest, shown)


def _refusal(error: HTTPError, shown: str) -> OSError:
    text = f"status code: {error.code} {responses.get(error.code, '')}: "
    with contextlib.suppress(HTTPException, OSError):
        text += error.read(_LONGEST_TEXT).decode(errors="replace")
    number = _ERRNOS.get(error.code, errno.EPROTO if error.code < 500 else errno.ECONNABORTED)
    return OSError(errno.EACCES if _code(text) in _REFUSALS else number, _reason(text), shown)


def _request(url: str, part: str) -> Request:
    found = _HTTP.match(url)
    if found is None or re.search(r"[\x00-\x1f]", url):
        raise ValueError
    path = quote(url[found.end() :].partition("#")[0], safe=string.punctuation)  # existing escapes stay
    request = Request(f"{found[1]}://{found[3]}{path}", headers={"User-Agent": "onecopy"})  # noqa: S310
    if part:
        request.add_header("Range", part)
    if user := _user_of(url):
        request.add_unredirected_header("Authorization", user)
    return request


def _user_of(url: str) -> str:
    """Return the HTTP header that sends the user and password of a URL, or "" if the URL has none."""
    found = _HTTP.match(url)
    return f"Basic {base64.b64encode(unquote(found[2]).encode()).decode()}" if found and found[2] else ""


def _version(is_part: bool, headers: HTTPMessage, digest: tuple[str, bytes] | None, shown: str) -> Version:
    pattern, name = (r"bytes 0-\d+/(\d{1,19})", "Content-Range") if is_part else (r"(\d{1,19})", "Content-Length")
    if (size := re.fullmatch(pattern, headers.get(name, ""))) is None:
        raise OSError(errno.ENOTSUP, "the server does not report the size of the object: download it yourself", shown)
    tag, modified = headers["ETag"], _time_in(headers["Last-Modified"])
    known = {"size": int(size[1]), "e_tag": tag, "last_modified": modified, "digest": _digest(headers) or digest}
    return Version.of({**known, "asked": _unsettled(tag, modified, _time_in(headers["Date"]))})


def _time_in(header: str | None) -> datetime | None:
    try:
        found = parsedate_to_datetime(header or "")
        return found.replace(tzinfo=found.tzinfo or UTC).astimezone(UTC)
    except (ValueError, ArithmeticError):
        return None


def _unsettled(tag: str | None, modified: datetime | None, asked: datetime | None) -> str | None:
    """Return the time of an answer that followed a change so closely that another change could go unnoticed, or None.

    Times in headers have a resolution of one second, and many servers derive tags from time and size. According to RFC
    9110 (8.8.2.2), a time identifies the content only if the answer is at least a second later. Without a strong tag, a
    minute is required, to allow for differences between clocks.
    """
    asked = asked or datetime.now(UTC).replace(microsecond=0)
    wait = timedelta(seconds=1 if tag and not tag.startswith("W/") else 60)
    return asked.isoformat() if modified and asked - modified < wait else None


def _digest(headers: HTTPMessage) -> tuple[str, bytes] | None:
    """Return the hash of the whole object from a header of RFC 9530, Google Cloud or the Hugging Face hub."""
    for name, header, pattern in _DIGESTS:
        if found := re.search(pattern, ", ".join(headers.get_all(header, []))):
            return name, bytes.fromhex(found[1]) if header == "X-Linked-ETag" else base64.b64decode(found[1])
    return None


class _Redirects(HTTPRedirectHandler):
    max_repeats = max_redirections = _MAX_REDIRECTS + 1

    def __init__(self, shown: str) -> None:
        self._shown, self._count = shown, 0
        self.digest: tuple[str, bytes] | None = None

    def http_error_302(self, req: Request, fp: Any, code: int, msg: str, headers: HTTPMessage) -> Any:
        """Follow a redirect, or raise PermissionError if it must be refused."""
        before, after = _HTTP.match(req.full_url), _HTTP.match(urljoin(req.full_url, headers.get("Location", "")))
        self._count += 1
        self.digest = self.digest or _digest(headers)
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
            raise PermissionError(errno.EACCES, f"the server redirects {reason}, which is not allowed", self._shown)
        return super().http_error_302(req, fp, code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def _near(host: str) -> set[str]:
    """Return which kinds of addresses a host has that other machines cannot reach: "link-local", "loopback"."""
    bare = host.strip("[]").partition("%")[0]
    try:
        found = {bare} if ":" in bare else {one[4][0] for one in socket.getaddrinfo(bare, None)}
        addresses = [ipaddress.ip_address(one) for one in found]
    except (OSError, ValueError):
        return set()  # perhaps a proxy can resolve the name
    addresses = [getattr(one, "ipv4_mapped", None) or one for one in addresses]
    kinds = {"link-local" for one in addresses if one.is_link_local}
    return kinds | {"loopback" for one in addresses if one.is_loopback or one.is_unspecified}
