"""What arguments of public functions mean, and what is refused."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from onecopy.base.text import (
    byte_count,
    counted,
    is_text,
    is_url,
    non_negative,
    parse_quantity,
    path_text,
    thread_count,
)


@pytest.mark.parametrize("path", ["/data/a@b.bin", "a@b", "host:8000/a@b", "C:/a/b@c", "s3://bucket/a@b", "x:/", ""])
def test_a_path_is_text_and_may_have_any_character_but_nul(path):
    assert [path_text(path), path_text(path.encode())] == [path, path]
    assert path_text(Path(path)) == str(Path(path))
    with pytest.raises(ValueError, match="embedded null byte"):
        path_text(f"{path}\0")


@pytest.mark.parametrize("url", ["ftp://me:secret@host/x", "sftp:///me:secret@host", "ssh:/me:secret@host/x"])
def test_a_password_in_a_url_reaches_no_message(url):
    with pytest.raises(ValueError, match=f"a URL with the unsupported protocol '{url.partition(':')[0]}'") as error:
        path_text(url)
    assert "secret" not in str(error.value)


def test_what_is_no_path_is_a_type_error_and_an_opened_file_has_advice():
    with pytest.raises(TypeError, match=r"not an opened file \(SimpleNamespace\): pass its .path"):
        path_text(SimpleNamespace(path="/x"))
    for other in (5, None, SimpleNamespace(path=5)):
        with pytest.raises(TypeError, match="expected str, bytes or"):
            path_text(other)


def test_numbers_are_limited_and_never_negative():
    assert [non_negative("x", number) for number in (None, 0, 1, 2**64 - 1, 2**70)] == [0, 0, 1, 2**64 - 1, 2**64 - 1]
    assert [thread_count(number) for number in (None, 0, 1, 1024, 1025)] == [0, 0, 1, 1024, 1024]
    assert [byte_count("x", size) for size in (0, 7, "7", "2 KiB")] == [0, 7, 7, 2048]
    for call in (lambda: non_negative("threads", -1), lambda: thread_count(-1), lambda: byte_count("threads", -1)):
        with pytest.raises(ValueError, match="threads must not be negative: -1"):
            call()
    with pytest.raises(TypeError):
        byte_count("x", 1.5)


def test_only_known_schemes_are_urls_and_names_have_no_unpaired_surrogates():
    urls = ("S3://a", "https://a", "s4://a", "s3:/a", b"s3://a", None)
    assert [is_url(one) for one in urls] == [True, True, False, False, False, False]
    assert [is_text(one) for one in ("", "é", "\ud800", b"a", None)] == [True, True, False, False, False]


def test_quantities_and_counts_have_their_units():
    assert parse_quantity("1.5 H", {"h": 3600}, "a time such as 3h") == 5400
    with pytest.raises(ValueError, match="'3 d' is not a time such as 3h"):
        parse_quantity("3 d", {"h": 3600}, "a time such as 3h")
    assert [counted(1, "array"), counted(2, "process", "processes")] == ["1 array", "2 processes"]
