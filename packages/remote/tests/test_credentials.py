"""Credentials that a bucket refuses: the error says why, and what had arrived is kept."""

import pytest
from tests.support.object_server import Fault

from onecopy_remote import fetch

CONTENT = bytes(range(256)) * 4096


def error_of_s3(code: str, status: int) -> Fault:
    text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>A secret: AKIA123</Message></Error>"
    return Fault(status=status, body=text)


@pytest.fixture
def url(objects, monkeypatch, store) -> str:
    for name, value in {
        "AWS_ENDPOINT_URL": objects.url,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "s",
    }.items():
        monkeypatch.setenv(name, value)
    objects.put("bucket/model.bin", CONTENT)
    return "s3://bucket/model.bin"


@pytest.mark.parametrize(
    ("code", "status", "advice"),
    [
        ("ExpiredToken", 400, "the credentials have expired"),
        ("RequestTimeTooSkewed", 403, "the clock of this machine differs too much from that of the server"),
    ],
)
def test_credentials_that_end_in_the_middle_keep_what_arrived(objects, url, store, small_pieces, code, status, advice):
    good = [Fault() for _ in range(4)]
    objects.faults.extend([*good, *(error_of_s3(code, status) for _ in range(100))])
    with pytest.raises(PermissionError, match=rf"\({code}: {advice}\)") as caught:
        fetch(url, store=store, connections=1)
    assert caught.value.filename == url
    assert "AKIA" not in str(caught.value)
    objects.faults.clear()
    before = objects.served
    assert fetch(url, store=store).read_bytes() == CONTENT
    assert objects.served - before == len(CONTENT) - 4 * small_pieces


def test_credentials_that_have_expired_are_named_before_anything_is_fetched(objects, url, store):
    objects.refusal = error_of_s3("ExpiredToken", 400)
    with pytest.raises(PermissionError, match=r"400 Bad Request \(ExpiredToken: the credentials have expired\)"):
        fetch(url, store=store)
    assert objects.served == 0


def test_a_refusal_without_a_known_reason_names_its_code(objects, url, store):
    objects.faults.extend(error_of_s3("AccessDenied", 403) for _ in range(100))
    with pytest.raises(PermissionError, match=r"403 Forbidden \(AccessDenied\)"):
        fetch(url, store=store)
