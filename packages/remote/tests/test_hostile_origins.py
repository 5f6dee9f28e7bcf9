"""What an origin or a URL can do to a machine: names, redirects and secrets."""

import base64
import contextlib
import errno
import json
import logging
import socket
import traceback
from urllib.parse import quote

import numpy as np
import pytest
from tests.support.object_server import Fault, serving

import onecopy as oc
from onecopy.files.companions import names_in
from onecopy_remote import fetch, shown

SECRET = "S3cr3t"


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["../secret"], id="a file above"),
        pytest.param(["a/../../b"], id="a file above, by a folder"),
        pytest.param(["/etc/passwd"], id="an absolute path"),
        pytest.param(["."], id="dot"),
        pytest.param(["a/."], id="a folder"),
        pytest.param(["a/"], id="a slash at the end"),
        pytest.param(["m", "m/n"], id="a file as a folder"),
        pytest.param(["m/n", "./m"], id="a folder as a file"),
        pytest.param(["/".join(["d"] * 1500)], id="1500 folders"),
        pytest.param(["n" * 256], id="a long name"),
        pytest.param(["\x1b[31m"], id="a control sequence"),
        pytest.param([f"s{number}" for number in range(10_001)], id="10001 files"),
    ],
)
def test_names_that_files_of_one_folder_cannot_have_are_errors_of_the_format(objects, store, names):
    index = {"weight_map": {f"w{number}": name for number, name in enumerate(names)}}
    url = objects.put("model/model.safetensors.index.json", json.dumps(index).encode())
    with pytest.raises(oc.FormatError, match=r"index\.json: "):
        fetch(url, store=store)
    assert {one.path for one in objects.requests} == {"model/model.safetensors.index.json"}


def test_names_that_mean_the_same_file_are_one(objects, store):
    index = {"weight_map": {"a": "./below//x y.bin", "b": "below/x y.bin", "c": "ä%2e.bin"}}
    url = objects.put("model/m.index.json", json.dumps(index).encode())
    objects.put("model/below/x y.bin", b"1")
    objects.put("model/ä%2e.bin", b"2")
    folder = fetch(f"{url}?token=1", store=store).parent
    assert (folder / "below/x y.bin").read_bytes() + (folder / "ä%2e.bin").read_bytes() == b"12"
    assert {one.query for one in objects.requests} == {"token=1"}


@pytest.mark.parametrize("name", ["x\0y", "d/x", "d/..", "../x"])
def test_an_object_whose_name_no_file_can_have_is_called_index(objects, store, name):
    objects.put(name, b"content")
    path = fetch(f"{objects.url}/{quote(name, safe='')}", store=store)
    assert (path.name, path.read_bytes()) == ("index", b"content")


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "a/../../b"])
def test_a_model_cannot_name_data_outside_its_folder(tmp_path, location):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    tensor = onnx.numpy_helper.from_array(np.ones(8, np.float32), "w")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.ClearField("raw_data")
    tensor.external_data.add(key="location", value=location)
    model = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], [tensor]))
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(oc.FormatError, match="not a path inside the model's folder"):
        names_in(tmp_path / "model.onnx")


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("http://169.254.169.254/latest/", "to a link-local address"),
        ("http://[fe80::1]/x", "to a link-local address"),
        ("http://[::ffff:169.254.169.254]/x", "to a link-local address"),
        ("file:///etc/passwd", "to another protocol"),
        ("ftp://127.0.0.1/x", "to another protocol"),
        ("gopher://127.0.0.1/x", "to another protocol"),
        ("/x", "more than 5 times"),
    ],
)
def test_a_redirect_to_where_no_server_may_lead_is_refused(objects, store, target, reason):
    url = objects.put("x", b"content")
    objects.redirects["x"] = target
    with pytest.raises(PermissionError, match=f"the server redirects {reason}, which is not allowed") as raised:
        fetch(f"{url}?token={SECRET}", store=store)
    assert raised.value.filename == url
    assert len(objects.requests) <= 6


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"])
def test_a_redirect_from_a_network_to_this_machine_is_refused(store, host):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.connect(("192.0.2.1", 9))  # sends nothing, and selects an address
        except OSError:
            pytest.skip("this machine has no network")
        address = one.getsockname()[0]
    with serving(address) as objects:
        objects.redirects["x"] = f"http://{host}/x"
        with pytest.raises(PermissionError, match="the server redirects to a loopback address, which is not allowed"):
            fetch(objects.put("x", b"content"), store=store)


@pytest.mark.parametrize(("status", "tries"), [(500, 2), (503, 2), (429, 2), (400, 1), (403, 1), (404, 1)])
def test_no_request_after_a_failed_one_follows_a_redirect_unseen(objects, store, status, tries):
    url = objects.put("x", b"content")
    objects.refusal = Fault(status)

    def answer(_):
        if len(objects.requests) == 2:
            objects.refusal = None
            objects.redirects["x"] = "http://169.254.169.254/latest/"

    objects.on_request = answer
    with pytest.raises(OSError, match="which is not allowed" if tries > 1 else str(status)) as raised:
        fetch(url, store=store)
    assert raised.value.filename == url
    assert len(objects.requests) == tries


@pytest.mark.parametrize("tag", ["", '"\x01"', '"\x1b[31m"', '"\xc3\xa9"', '"\xff"', '"a\tb"', '"\x7f"'])
def test_a_tag_that_no_request_can_contain_identifies_nothing(objects, store, tag):
    url = objects.put("x", b"content")
    objects.tags["x"] = tag
    with pytest.raises(OSError, match="neither ETag nor Last-Modified") as raised:
        fetch(url, store=store)
    assert raised.value.errno == errno.ENOTSUP
    objects.times["x"] = "Mon, 01 Jan 2024 00:00:00 GMT"
    with contextlib.suppress(OSError):  # of obstore, for a tag that is not ASCII
        assert fetch(url, store=store).read_bytes() == b"content"


URLS = [
    "http://user:{secret}@{host}/404/x?X-Amz-Signature={secret}&token={secret}#{secret}",
    "HTTP://user:{secret}@{host}/404/x?sig={secret}",
    "http://user:{secret}@{host}//x//?sig={secret}",
    "http://user:{secret}@{host}/x y?sig={secret}",
    "http://user:{secret}@{host}/x\0?sig={secret}",
    "http://user:{secret}@{host}:99999999/x",
    "http://user:{secret}@[::1/x?sig={secret}",
    "http://user:{secret}\N{ACCOUNT OF}@{host}/x?sig={secret}",
    "http:// user:{secret}@{host}/x?sig={secret}",
    "http://user:{secret}/@{host}/x",
    "http://user:{secret}?@{host}/x",
    "s3://AKIA:{secret}@bucket/x?sig={secret}",
    "az://container/x?sv=1&sig={secret}",
    "ftp://user:{secret}@{host}/x",
    "file://user:{secret}@{host}/x",
    "http:/user:{secret}@{host}/x",
]


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("open_", [fetch, oc.open, oc.open_records, oc.images.open], ids=lambda one: one.__qualname__)
def test_no_message_has_a_password_or_a_signature(objects, monkeypatch, caplog, tmp_path, url, open_):
    for name, value in {
        "AWS_ENDPOINT_URL": objects.url,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AZURE_STORAGE_ACCOUNT_NAME": "account",
        "AZURE_STORAGE_ENDPOINT": objects.url,
        "AZURE_ALLOW_HTTP": "true",
        "AZURE_SKIP_SIGNATURE": "true",
        "ONECOPY_CACHE": str(tmp_path / "cache"),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("onecopy_remote.origin._RETRIES", 0)
    monkeypatch.setattr("onecopy_remote.transfer._TRIES", 1)
    with caplog.at_level(logging.DEBUG), pytest.raises((OSError, ValueError)) as raised:
        open_(url.format(secret=SECRET, host=objects.url[7:]))
    text = "".join(traceback.format_exception(raised.value)).replace(__file__, "")
    lines = [line for line in text.splitlines() if not line.startswith("    ")]  # without lines of source
    assert SECRET not in "\n".join(lines) + repr(raised.value) + caplog.text
    assert SECRET not in repr(vars(raised.value)) + str(getattr(raised.value, "filename", ""))


def test_user_and_password_are_sent_to_no_other_server(objects, store):
    with serving("127.0.0.2") as other:
        objects.redirects["x"] = other.put("x", b"content")
        fetch(f"http://user:{SECRET}@{objects.url[7:]}/x", store=store)
        sent = [{one.authorization for one in server.requests} for server in (objects, other)]
    assert sent == [{f"Basic {base64.b64encode(f'user:{SECRET}'.encode()).decode()}"}, {""}]


def test_a_key_has_the_object_and_not_who_asked_for_it(objects, store):
    objects.put("x", b"content")
    host = objects.url[7:]
    first = fetch(f"http://user:{SECRET}@{host}/x?sv=1&sig={SECRET}", store=store)
    assert fetch(f"http://{host}/x", store=store) == first
    (artefact,) = store.ls()
    assert artefact.key.startswith(f"http://{host}/x, etag ")


@pytest.mark.parametrize(
    ("url", "text"),
    [
        (f"http:/user:{SECRET}@host/x", "...@host/x"),
        (f"http://user:{SECRET}/x", "http://.../x"),
        (f"s3://key:{SECRET}@bucket/a@b#c", "s3://bucket/a@b#c"),
        (f"gs://bucket/x?{SECRET}", "gs://bucket/x"),
    ],
)
def test_what_is_shown_of_a_url_has_no_secret(url, text):
    assert shown(url).endswith(text)
    assert SECRET not in shown(url)
