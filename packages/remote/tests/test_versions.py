"""What is fetched is one version of one object, whatever the server sends to identify it."""

import os
import time
from dataclasses import dataclass
from email.utils import formatdate

import pytest
from tests.support import object_server

import onecopy as oc
from onecopy_remote import fetch

OLD, NEW = os.urandom(600_000), os.urandom(600_000)
TIMES = "Mon, 01 Jan 2024 00:00:00 GMT", "Mon, 01 Jan 2024 00:05:00 GMT"


@pytest.mark.parametrize("tag", ["", 'W/"1"'])
@pytest.mark.parametrize("requests", range(1, 6))
def test_two_versions_with_different_times_never_become_one_file(objects, store, small_pieces, requests, tag):
    url = objects.put("x", OLD)
    objects.tags["x"], objects.times["x"] = tag, TIMES[0]

    def replace(_):
        if len(objects.data_requests) == requests:
            objects.put("x", NEW)
            objects.times["x"] = TIMES[1]

    objects.on_data = replace
    with pytest.raises(oc.errors.FileChanged):
        fetch(url, store=store, connections=1)
    assert {one.condition for one in objects.data_requests} == {TIMES[0]}
    objects.on_data = None
    assert fetch(url, store=store).read_bytes() == NEW


def test_ranges_of_versions_that_only_a_weak_tag_identifies_are_not_combined(objects, store, small_pieces):
    url = objects.put("x", OLD)
    objects.tags["x"] = 'W/"1"'
    assert fetch(url, store=store).read_bytes() == OLD
    assert [(one.begin, one.end) for one in objects.data_requests] == [(None, None)]


@pytest.mark.parametrize(
    "name",
    ["sku", "skip", "skin", "se", "st", "sr", "ss", "sp", "sig", "sv", "token", "policy", "expires", "Signature"],
)
def test_a_parameter_that_is_no_whole_signature_selects_the_content(objects, store, name):
    objects.on_request = lambda one: objects.put("x", one.query.encode())
    objects.tags["x"], objects.times["x"] = "", TIMES[0]
    first, second = (fetch(f"{objects.url}/x?{name}={value}", store=store) for value in "12")
    assert (first.read_bytes(), second.read_bytes()) == (f"{name}=1".encode(), f"{name}=2".encode())


def test_parameters_in_another_order_may_select_other_content(objects, store):
    objects.on_request = lambda one: objects.put("x", one.query.encode())
    objects.tags["x"] = '"1"'
    assert fetch(f"{objects.url}/x?a=1&a=2", store=store).read_bytes() == b"a=1&a=2"
    assert fetch(f"{objects.url}/x?a=2&a=1", store=store).read_bytes() == b"a=2&a=1"


@pytest.mark.parametrize(
    "signature",
    [
        "X-Amz-Algorithm=A&X-Amz-Credential={}&X-Amz-Date=3&X-Amz-Expires=4&X-Amz-SignedHeaders=h&X-Amz-Signature={}",
        "X-Goog-Algorithm=A&X-Goog-Credential={}&X-Goog-Date=3&X-Goog-Expires=4&X-Goog-SignedHeaders=h&X-Goog-Signature={}",
        "AWSAccessKeyId={}&Expires=3&Signature={}",
        "GoogleAccessId={}&Expires=3&Signature={}",
        "Expires={}&Signature={}&Key-Pair-Id=K",
        "Policy={}&Signature={}&Key-Pair-Id=K",
        "sv=2024-11-04&sp=r&st=1&se={}&spr=https&sr=b&sig={}",
    ],
)
def test_whole_signatures_of_every_provider_select_nothing(objects, store, signature):
    url = objects.put("x", OLD)
    first = fetch(f"{url}?id=1&{signature.format(1, 2)}", store=store)
    assert fetch(f"{url}?{signature.format(3, 4)}&id=1", store=store) == first
    assert fetch(f"{url}?{signature.format(1, 2)}&id=2", store=store) != first
    without = signature.partition("&")[2]
    assert fetch(f"{url}?id=1&{without.format(1, 2)}", store=store) != first


def test_a_path_with_escaped_slashes_is_sent_as_it_is(objects, store):
    seen = []
    objects.on_request = lambda one: (seen.append(one.path), objects.put(one.path, OLD))
    assert fetch(f"{objects.url}/a%2F%2Fb%20c//d", store=store).read_bytes() == OLD
    assert set(seen) == {"a//b c//d"}


def test_an_origin_that_claims_many_bytes_gets_none_reserved(objects, store, small_pieces):
    url = objects.put("x", OLD)
    objects.claimed["x"] = 64 << 20
    with pytest.raises(OSError, match=r"416 Range Not Satisfiable|Requested .*, got"):
        fetch(url, store=store)
    (partial,) = store.folder.glob("*.partial")
    assert partial.stat().st_blocks * 512 < 32 << 20


@dataclass
class Clock:
    """The clock of a server, which writes it into its answers."""

    now: int = 1_700_000_000

    @property
    def text(self) -> str:
        return formatdate(self.now, usegmt=True)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(object_server.Handler, "date_time_string", lambda *_: clock.text)
    return clock


@pytest.mark.parametrize(
    ("tag", "age", "is_trusted"),
    [
        ("", 1, False),
        ("", 59, False),
        ("", 60, True),
        ('W/"1"', 59, False),
        ('W/"1"', 60, True),
        ('"6553f100-927c0"', 1, True),  # nginx: time and size
        ('"6553f100-927c0"', -5, False),  # the time of the change is in the future
    ],
)
def test_a_time_that_more_than_one_content_can_have_identifies_none(objects, store, clock, tag, age, is_trusted):
    url = objects.put("x", OLD)
    objects.tags["x"], objects.times["x"] = tag, clock.text
    clock.now += age
    assert fetch(url, store=store).read_bytes() == OLD
    objects.put("x", NEW)
    clock.now += 1
    objects.requests.clear()
    assert fetch(url, store=store).read_bytes() == (OLD if is_trusted else NEW)
    assert len(objects.data_requests) == (not is_trusted)
    clock.now += 60
    assert fetch(url, store=store).read_bytes() == (OLD if is_trusted else NEW)


@pytest.mark.parametrize("tag", ["", '"{}-927c0"'])
def test_an_object_that_is_replaced_within_a_second_is_fetched_again(objects, store, tag):
    for content in (OLD, NEW, OLD):
        url = objects.put("x", content)
        objects.times["x"] = formatdate(time.time(), usegmt=True)
        objects.tags["x"] = tag.format(objects.times["x"])
        assert fetch(url, store=store).read_bytes() == content
