"""`Origin`: an object behind a URL, read in ranges through obstore."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from onecopy.errors import FileChanged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from obstore import Bytes

__all__ = ["Origin", "Version", "is_http", "shown"]

_SIGNATURE = re.compile(
    r"x-(amz|goog)-.*|awsaccesskeyid|googleaccessid|signature|expires|policy|key-pair-id|token|access_token"
    r"|s[evprt]|sig|spr|srt|sip|ss|sk[a-z]+|se|st",
    re.IGNORECASE,
)
"""Parameters of a query that sign a request (S3, Google Cloud, CloudFront, Azure): they do not select the content."""
_AWS_IN_ENVIRONMENT = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SKIP_SIGNATURE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
_RETRIES, _RETRY_S = 5, 60
_CLIENT = {"connect_timeout": "10 s", "read_timeout": "60 s", "timeout": "7 days", "pool_max_idle_per_host": "64"}
"""A connection may be slow, but not silent: `timeout` is that of a whole request, and a slow link takes hours."""
_CHUNK = 256 << 10
_BAD_REQUEST, _NO_SUCH_RANGE = "400 Bad Request", "416 Range Not Satisfiable"
_REFUSALS = {
    "AuthenticationFailed": "check the credentials and the clock of this machine",
    "ExpiredToken": "the credentials have expired",
    "InvalidAccessKeyId": "the access key does not exist",
    "InvalidToken": "the session token is not valid",
    "RequestTimeTooSkewed": "the clock of this machine differs too much from that of the server",
    "SignatureDoesNotMatch": "the secret key does not belong to the access key",
    "TokenRefreshRequired": "the session token must be refreshed",
}
"""Codes by which S3 and Azure refuse credentials; some come with 400, not with 403."""


@dataclass(frozen=True, slots=True)
class Version:
    """What identifies the content of an object at a moment."""

    size: int
    """Size in bytes."""
    etag: str | None
    """The entity tag as the server sends it, quotes included; None if it sends none."""
    modified: str | None
    """Time of the last change as text in ISO 8601; None if the server does not report one."""
    number: str | None
    """Version of the object in a bucket that keeps versions."""

    @classmethod
    def of(cls, meta: Any) -> Version:
        """Make one of the metadata that obstore returns."""
        modified = meta["last_modified"]
        known = modified is not None and modified.timestamp() > 0  # 1970: the server sent no Last-Modified
        return cls(meta["size"], meta.get("e_tag"), modified.isoformat() if known else None, meta.get("version"))

    @property
    def condition(self) -> dict[str, Any]:
        """Options of a request that must fail if the content has changed; a weak tag cannot be used for If-Match."""
        return {"if_match": self.etag} if self.etag and not self.etag.startswith("W/") else {}

    def __str__(self) -> str:
        tag = f"etag {self.etag}" if self.etag else f"modified {self.modified}"
        return ", ".join([tag, f"{self.size} bytes", *([f"version {self.number}"] if self.number else [])])


class Origin:
    """An object behind a URL.

    Credentials come from where the tools of the provider find them: environment variables, files and instance metadata.
    For S3 with boto3 installed and no key in the environment, boto3 finds them, profiles and single sign-on included.

    Raises
    ------
    ModuleNotFoundError
        obstore is not installed.
    ValueError
        The URL names no object.
    """

    serves = True
    """False: there is no server, and nodes alone have the file."""

    def __init__(self, url: str) -> None:
        self.shown = shown(url)
        """The URL for messages and keys: of HTTP, without user, password and query."""
        scheme, _, rest = url.partition("://")
        bucket, _, self._path = rest.partition("/")
        if not bucket or "\0" in url:
            raise ValueError(f"{self.shown}: a URL with a host or bucket is needed")
        self._obstore = _imported()
        self._is_http = is_http(url)
        self._query = ""
        root = f"{scheme}://{bucket}"
        if self._is_http:  # opened whole, so that its query, which may be signed, is sent as it is
            root, self._path = url.partition("#")[0], ""
            self._query = _content_query(urlsplit(url).query)
        with self._errors():
            self._store = self._obstore.store.from_url(root, **_options(scheme.lower()))

    def version(self) -> Version:
        """Ask the server for the current version.

        HTTP servers are asked for the first byte, because a signed URL is valid for GET alone.

        Raises
        ------
        OSError
            FileNotFoundError, PermissionError, ConnectionError, ...; ``filename`` is the URL without its query.
        """
        with self._errors():
            try:
                if not self._is_http:
                    return Version.of(self._obstore.head(self._store, self._path))
            except self._obstore.exceptions.BaseError as error:
                if _status(error) != _BAD_REQUEST:  # an answer to HEAD has no text: a GET brings the reason
                    raise
            try:
                return Version.of(self._obstore.get(self._store, self._path, options={"range": (0, 1)}).meta)
            except self._obstore.exceptions.BaseError as error:
                if (
                    not isinstance(error, self._obstore.exceptions.NotSupportedError)
                    and _status(error) != _NO_SUCH_RANGE
                ):
                    raise
                return Version.of(self._obstore.get(self._store, self._path).meta)  # without ranges, or an empty object

    def key(self, version: Version) -> str:
        """Return the key of a version in a store: it has no credentials, and changes with the content.

        Raises
        ------
        OSError
            The server reports neither an entity tag nor a time, so that a change would not be noticed.
        """
        if not version.etag and not version.modified:
            raise OSError(
                errno.ENOTSUP,
                "the server sends neither ETag nor Last-Modified, so that a change would not be noticed: download it",
                self.shown,
            )
        query = f", query {hashlib.sha256(self._query.encode()).hexdigest()[:16]}" if self._query else ""
        return f"{self.shown}{query}, {version}"

    def chunks(self, start: int, stop: int, version: Version) -> Iterator[Bytes]:
        """Yield the bytes from `start` to `stop` as they arrive; fewer if the connection ends early.

        Raises
        ------
        FileChanged
            The object has another version now.
        NotImplementedError
            The server does not support ranges.
        OSError
            As `version`; `ConnectionError` for what may succeed when it is tried again.
        """
        with self._errors():
            options = {"range": (start, stop), **version.condition}
            try:
                answer = self._obstore.get(self._store, self._path, options=options)
            except self._obstore.exceptions.NotSupportedError as error:
                raise NotImplementedError(_reason(error)) from None
            self._expect(answer, version)
            yield from answer.stream(min_chunk_size=_CHUNK)

    def whole(self, version: Version) -> Iterator[Bytes]:
        """Yield all bytes as they arrive, with one request; errors as those of `chunks`."""
        with self._errors():
            answer = self._obstore.get(self._store, self._path, options=version.condition)
            self._expect(answer, version)
            yield from answer.stream(min_chunk_size=_CHUNK)

    def names(self) -> list[str]:
        """List the names of the objects directly below this URL, for which it must end with "/".

        Raises
        ------
        OSError
            As `version`; ENOTSUP for HTTP, which has no listing.
        """
        if self._is_http:
            raise OSError(errno.ENOTSUP, "HTTP servers list no folders: give the URL of a file", self.shown)
        with self._errors():
            found = self._obstore.list_with_delimiter(self._store, self._path)["objects"]
        return [one["path"].rpartition("/")[2] for one in found]

    def _expect(self, answer: Any, version: Version) -> None:
        now = Version.of(answer.meta)
        if (now.size, now.etag, now.number) != (version.size, version.etag, version.number):
            raise FileChanged(
                errno.ESTALE, f"the object changed while it was fetched: {version} before, {now}", self.shown
            )

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise the errors of obstore as built-in ones that name the URL; their own text may have a signed URL."""
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


def _imported() -> Any:
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ModuleNotFoundError as error:
        if error.name != "obstore":
            raise
        raise ModuleNotFoundError("URLs need obstore: pip install 'onecopy[remote]'", name="obstore") from None
    return obstore


def _options(scheme: str) -> dict[str, Any]:
    """Return the options of a store: time limits, plain HTTP where the URL says so, credentials through boto3."""
    client: dict[str, Any] = dict(_CLIENT)
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    is_s3 = scheme in ("s3", "s3a")
    if scheme == "http" or (is_s3 and endpoint.startswith("http://")):
        client["allow_http"] = True
    options: dict[str, Any] = {
        "client_options": client,
        "retry_config": {"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_RETRY_S)},
    }
    if is_s3 and not any(name in os.environ for name in _AWS_IN_ENVIRONMENT):
        with contextlib.suppress(ModuleNotFoundError):
            from obstore.auth.boto3 import Boto3CredentialProvider

            with contextlib.suppress(ValueError):  # boto3 finds no credentials either
                options["credential_provider"] = Boto3CredentialProvider()
    return options


def is_http(url: str) -> bool:
    """Return whether a URL has a query and escapes; those of buckets are the name of an object as it is."""
    return url.partition("://")[0].lower() in ("http", "https")


def shown(url: str) -> str:
    """Return a URL for messages: of HTTP, without user, password, query and fragment.

    Examples
    --------
    >>> shown("https://me:secret@host/a%20b?X-Amz-Signature=1#x")
    'https://host/a%20b'
    >>> shown("s3://bucket/100%?.npy")
    's3://bucket/100%?.npy'
    """
    if not is_http(url):
        return url
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _content_query(query: str) -> str:
    """Return the part of a query that selects content: without signatures, sorted.

    Examples
    --------
    >>> _content_query("X-Amz-Signature=1&id=7&sig=x")
    'id=7'
    """
    pairs = parse_qsl(query, keep_blank_values=True)
    return urlencode(sorted(pair for pair in pairs if not _SIGNATURE.fullmatch(pair[0])))


def _status(error: BaseException) -> str:
    """Return the status with which a server refused, such as "404 Not Found"; empty for other errors."""
    found = re.search(r"status code: (\d{3}[^:\n]*)", str(error))
    return found[1].strip() if found else ""


def _code(error: BaseException) -> str:
    """Return the code in the XML text of an answer, such as "AccessDenied"; empty if there is none."""
    found = re.search(r"<Code>([A-Za-z0-9.]{1,60})</Code>", str(error))
    return found[1] if found else ""


def _reason(error: BaseException) -> str:
    """Return what the server or the network said, out of the text of an error of obstore, without URLs."""
    if status := _status(error):
        code = _code(error)
        more = f" ({code}{': ' + _REFUSALS[code] if code in _REFUSALS else ''})" if code else ""
        return f"the server answers {status}{more}"
    line = str(error).split("\n", 1)[0].strip()
    cause = re.findall(r'(?:message|error): "([^"]*)"', str(error))  # of the innermost error that obstore shows
    text = cause[-1] if cause else line.rpartition(" - ")[2]
    return re.sub(r"\b[a-z0-9]+://\S+", "...", text).strip(" :,") or type(error).__name__
