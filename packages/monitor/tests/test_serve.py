"""`onecopy serve`: metrics that Prometheus can read, a page in a real browser, and requests that want more."""

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from tests.support.waiting import until
from tests.support.watched import MAP, TOUCH_ALL, Watched

from onecopy_monitor import Sampler
from onecopy_monitor.serving.metrics import Metrics

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
parser = pytest.importorskip("prometheus_client.openmetrics.parser")

pytestmark = pytest.mark.processes

MIB = 1 << 20
EVIL = "<img src=x onerror=alert(1)> & \"b\" '{{c}}'\\"


@contextmanager
def server(*arguments: object) -> Iterator[str]:
    """Serve on a port that is free, without a token; give the address."""
    with listening("--no-token", *arguments) as line:
        yield re.search(r"(http://\S+)/ ;", line)[1]


@contextmanager
def listening(*arguments: object, program: tuple[str, str] = ("-m", "onecopy")) -> Iterator[str]:
    """Serve on a port that is free; give the line that says where."""
    command = [sys.executable, *program, "serve", "--port", "0", "--interval", "0.1", *map(str, arguments)]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    try:
        line = child.stderr.readline()
        assert "http://" in line
        yield line
    finally:
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=20)


def get(address: str, method: str = "GET", **headers: str) -> tuple[int, str, dict[str, str]]:
    request = urllib.request.Request(address, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), dict(error.headers)


def test_metrics_are_open_metrics_and_few(cold_file):
    path = cold_file(32 * MIB, f"{EVIL}.bin".replace("/", ""))
    with Watched(MAP + TOUCH_ALL, path, count=3) as group, server("--name", EVIL, *group.pids) as address:
        status, text, headers = get(f"{address}/metrics")
    assert status == 200
    assert headers["content-type"].startswith("application/openmetrics-text")
    families = {one.name: one for one in parser.text_string_to_metric_families(text)}
    (real,) = families["onecopy_group_real_bytes"].samples
    assert real.labels == {"group": EVIL}
    assert 32 * MIB < real.value < 64 * MIB
    assert families["onecopy_group_sum_of_rss_bytes"].samples[0].value > 96 * MIB
    cached = {one.labels["path"]: one.value for one in families["onecopy_file_cached_bytes"].samples}
    assert cached[str(path)] == 32 * MIB
    assert families["onecopy_file_mappers"].samples[0].value == 3
    assert families["onecopy_group_minor_faults"].samples[0].value < 100  # those of the past do not count
    assert sum(len(one.samples) for one in families.values()) < 150


def test_faults_of_all_processes_since_the_first_look_are_counted_also_of_ended_ones():
    with Sampler([os.getpid()]) as sampler:
        (one,) = (snapshot := sampler.sample()).processes
    other = replace(one, pid=one.pid + 1)
    later = replace(one, minor_faults=one.minor_faults + 10, major_faults=one.major_faults + 2)
    looks = iter([(one, other), (later, replace(other, minor_faults=other.minor_faults + 5)), (other,)])
    metrics = Metrics(lambda: replace(snapshot, processes=next(looks)), lambda: None, "x")
    for minor, major in ((0, 0), (15, 2), (15, 2)):
        values = {metric.name: metric.samples[0].value for metric in metrics.collect() if metric.samples}
        assert (values["onecopy_group_minor_faults"], values["onecopy_group_major_faults"]) == (minor, major)


def test_the_page_gets_a_look_and_there_is_nothing_to_write_to_and_nothing_else_to_read():
    with Watched("", count=2) as group, server("--name", EVIL, *group.pids) as address:
        facts = json.loads(get(f"{address}/snapshot")[1])
        page = get(address)[1]
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            assert get(f"{address}/snapshot", method)[0] == 405
        for path in ("/page/../serving.py", "/..%2f..%2fetc/passwd", "/page.py", "/snapshot/1"):
            assert get(address + path)[0] == 404
        assert get(f"{address}/snapshot", Host="evil.example")[0] == 400, "a page of the web, by a name of its own"
        headers = get(address)[2]
    assert facts["group"] == EVIL
    assert {one["pid"] for one in facts["processes"]} == set(group.pids)
    assert EVIL not in page, "names are set by the script, as text"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


def test_requests_need_the_token():
    with Watched("") as group, listening("--name", "x", *group.pids) as line:
        address, token = re.search(r"(http://\S+/)\?token=(\S+) ;", line).groups()
        assert f"{address}metrics" in line
        assert len(token) >= 20
        for path in ("", "snapshot", "metrics", "page.js"):
            status, text, headers = get(address + path)
            assert (status, headers["www-authenticate"]) == (401, "Bearer")
            assert "x" not in text.replace("token", "").split()
            assert get(f"{address}{path}?token={token[:-1]}")[0] == 401
            assert get(address + path, Authorization=f"Bearer {token}x")[0] == 401
            assert get(address + path, Cookie=f"onecopy-1={token}")[0] == 401
            assert get(address + path, Authorization=f"Bearer {token}")[0] == 200
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with browser.open(f"{address}?token={token}", timeout=20) as answer:
            assert answer.url == address  # the token is in no history
        for path in ("//evil.example/", "///evil.example/a", "/%5C/evil.example", "/%2F/evil.example"):
            assert redirected(address, f"{path}?token={token}").startswith("/evil.example")
        with browser.open(f"{address}snapshot", timeout=20) as answer:
            assert json.loads(answer.read())["group"] == "x"
    with Watched("") as group, listening("--token", "mine", *group.pids) as line:
        assert "?token=mine ;" in line
    with Watched("") as group:
        command = [sys.executable, "-m", "onecopy", "serve", "--token", "a", "--no-token", str(group.pids[0])]
        assert subprocess.run(command, capture_output=True, check=False).returncode == 2


def redirected(address: str, target: str) -> str:
    """Return where a request for a target, which urllib would change, is redirected to."""
    host, port = re.fullmatch(r"http://([^:]+):(\d+)/", address).groups()
    connection = http.client.HTTPConnection(host, int(port), timeout=20)
    connection.request("GET", target)
    with contextlib.closing(connection), connection.getresponse() as answer:
        assert answer.status == 303
        return answer.headers["location"]


def is_closed(connection: socket.socket) -> bool:
    """Report whether the other end has closed a connection."""
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except ConnectionResetError:
        return True
    except BlockingIOError:
        return False


def test_idle_connections_do_not_block_others():
    with Watched("") as group, server(*group.pids) as address:
        host, port = address.removeprefix("http://").split(":")
        idle = []
        for number in range(80):
            one = socket.create_connection((host, int(port)))
            with contextlib.suppress(OSError):  # closed already
                one.sendall(b"GET / HTTP/1.1\r\nHost: localh" if number % 2 else b"")
            idle.append(one)
        until(lambda: sum(map(is_closed, idle)) >= 80 - 64, "connections above the limit to be closed")
        for one in idle[:20]:
            one.close()
        until(lambda: answers(f"{address}/snapshot"))
        for one in idle:
            one.close()


def test_who_has_the_token_is_answered_however_many_connections_others_make():
    with Watched("") as group, listening(*group.pids) as line:
        address, token = re.search(r"(http://\S+/)\?token=(\S+) ;", line).groups()
        host, port = re.fullmatch(r"http://([^:]+):(\d+)/", address).groups()
        with contextlib.ExitStack() as stack:

            def connect(first: bytes) -> socket.socket:
                connection = stack.enter_context(socket.create_connection((host, int(port)), timeout=20))
                connection.sendall(first)
                connection.settimeout(None)
                return connection

            for _ in range(3):
                dripping = [connect(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: ") for _ in range(70)]
                assert get(f"{address}snapshot", Authorization=f"Bearer {token}")[0] == 200
                until(lambda those=dripping: sum(map(is_closed, those)) >= 70 - 64, "the oldest to be closed")


def test_a_connection_ends_after_a_while(monkeypatch):
    access = pytest.importorskip("onecopy_monitor.serving.access")
    assert access.SECONDS == 30
    code = "import onecopy_monitor.serving.access as access\naccess.SECONDS = 0.5\n"
    program = ("-c", code + "from onecopy.cli import main\nmain()")
    with Watched("") as group, listening("--no-token", *group.pids, program=program) as line:
        port = int(re.search(r"http://[^:]+:(\d+)/", line)[1])
        with socket.create_connection(("127.0.0.1", port)) as slow:
            slow.settimeout(20)
            slow.sendall(b"GET /snapshot HTTP/1.1\r\nHost: loc")
            assert slow.recv(1) == b""


def answers(address: str) -> bool:
    try:
        return get(address)[0] == 200
    except OSError:  # closed: there are too many still
        return False


def test_who_ends_leaves_the_page_and_the_server_goes_on():
    with Watched("", count=2) as group, server(*group.pids) as address:
        for number, left in ((0, group.pids[1:]), (1, [])):
            group.kill(number)
            time.sleep(0.2)
            facts = json.loads(get(f"{address}/snapshot")[1])
            assert [one["pid"] for one in facts["processes"]] == left
        assert facts["total"]["real"] == 0
        assert get(f"{address}/metrics")[0] == 200


def test_a_port_that_is_taken_is_reported():
    with socket.socket() as taken, Watched("") as group:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "onecopy", "serve", "--port", str(port), str(group.pids[0])]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert f"127.0.0.1:{port}: Address already in use" in done.stderr


def test_in_a_browser_names_are_text(cold_file, tmp_path):
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no chromium here")
    path = cold_file(16 * MIB, f"{EVIL}.bin".replace("/", ""))
    with Watched(MAP + TOUCH_ALL, path, count=2) as group, server("--name", EVIL, *group.pids) as address:
        command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
        command += ["--virtual-time-budget=5000", "--dump-dom", address]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100, env=os.environ)
        if not done.stdout:
            pytest.skip(f"chromium does not start here: {done.stderr[-200:]}")
    dom = done.stdout
    assert "&lt;img src=x onerror=alert(1)&gt;" in dom
    assert "<img" not in dom
    assert all(f'<td class="n">{pid}</td>' in dom for pid in group.pids)
    assert "sum of RSS:" in dom
    assert "<meter" in dom
