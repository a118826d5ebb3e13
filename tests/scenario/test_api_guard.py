"""Who may ask what: names of any kind in every route, foreign web pages, methods, media types, sizes."""

from __future__ import annotations

import http.client
import json
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rig import NEVER, Rig, until

SLASH, ODD = "build/ship", "a b?c#d&e=f%2Fg"
NAMES = [SLASH, ODD, "tägl\u0131ch \U0001f514", "x..", "'\"<b>\\", "x" * 200, "%", "+", "{x}"]


def raw(rig: Rig, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, Any, dict[str, str]]:
    """One request with exactly these headers (Host too), as no well-behaved client would send it."""
    connection = http.client.HTTPConnection("127.0.0.1", rig.port, timeout=30)
    try:
        connection.putrequest(method, path, skip_host=True)
        for name, value in {"Host": f"127.0.0.1:{rig.port}", **headers}.items():
            connection.putheader(name, value)
        if body or "Content_Length" in headers:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders()
        try:
            connection.send(body)
        except OSError:
            pass  # answered and closed before all of it was taken
        reply = connection.getresponse()
        text = reply.read()
        try:
            return reply.status, json.loads(text), dict(reply.getheaders())
        except ValueError:
            return reply.status, text.decode(errors="replace"), dict(reply.getheaders())
    finally:
        connection.close()


def test_87_any_name_works_in_every_route(rig: Rig, tmp_path: Path) -> None:
    """Slashes, percent signs, question marks, quotes, dots, other scripts: escaped, each name reaches its own job in
    every route, again and again, and no file is made outside the state folder."""
    state = tmp_path / "deep" / "state"
    state.parent.mkdir()
    rig.start([{"name": name, "schedule": NEVER, "captureStdout": True, "concurrencyPolicy": "Allow",
                "command": ["printf", "%s\n", name]} for name in NAMES]
              + [{"name": f"slow{name}", "schedule": NEVER, "command": "sleep 60", "killTimeout": 1} for name in NAMES],
              state={"path": str(state)})
    outside = sorted(path.name for path in tmp_path.iterdir())
    for name in NAMES:
        path = f"/jobs/{quote(name, safe='')}"
        for _ in range(2):
            status, body = rig.http("POST", f"{path}/start")
            assert (status, body.get("started")) == (200, name), (name, status, body)
            assert rig.recorded(body["run"])["job"] == name
        assert rig.http("GET", path)[1]["name"] == name
        assert len(rig.http("GET", f"{path}/runs")[1]["runs"]) == 2
        assert json.dumps({"stream": "stdout", "line": name}, ensure_ascii=False, separators=(",", ":")) in \
            rig.http("GET", f"{path}/logs")[1]
        assert rig.http("GET", f"{path}/next")[0] == 200 and rig.http("GET", f"{path}/explain")[0] == 200
        assert rig.http("POST", f"{path}/cancel")[0] == 409
        slow = f"/jobs/{quote('slow' + name, safe='')}"
        assert rig.http("POST", f"{slow}/start")[0] == 200
        until(lambda slow=slow: rig.http("GET", slow)[1]["pids"], 10, "the slow run")
        assert rig.http("POST", f"{slow}/cancel") == (200, {"cancelled": "slow" + name, "instances": 1})
        assert rig.http("GET", f"/runs?job={quote(name, safe='')}")[1]["runs"][0]["job"] == name
    assert sorted(path.name for path in tmp_path.iterdir()) == outside
    assert [path.name for path in state.parent.iterdir()] == ["state"]
    assert rig.http("GET", "/jobs/build/ship")[0] == 404


def test_89_foreign_pages_change_nothing(rig: Rig, tmp_path: Path) -> None:
    """A changing request with a foreign Origin, the origin `null`, or the Host of a rebound name is refused with 403
    and starts nothing; one without an Origin, or from our own page, is served; reading from elsewhere is not."""
    marks = tmp_path / "marks"
    rig.start([{"name": "j", "schedule": NEVER, "concurrencyPolicy": "Allow", "command": f"echo x >> {marks}"}])
    own = f"127.0.0.1:{rig.port}"
    refused: list[dict[str, str]] = [
        {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": f"https://{own}"},
        {"Origin": f"http://{own}.evil.example"}, {"Origin": f"http://localhost:{rig.port}"},
        {"Host": "evil.example", "Origin": "http://evil.example"}, {"Host": "evil.example"},
        {"Host": f"evil.example:{rig.port}", "Origin": f"http://evil.example:{rig.port}"},
    ]
    for headers in refused:
        for path in ("/jobs/j/start", "/jobs/j/cancel", "/reload", "/runs/x/cancel"):
            status, body, _ = raw(rig, "POST", path, **headers)
            assert status == 403 and "error" in body, (headers, path)
    assert raw(rig, "GET", "/jobs", Host="evil.example")[0] == 403, "a rebound name may not read either"
    assert raw(rig, "GET", "/jobs", Origin="http://evil.example")[0] == 200
    assert "Access-Control-Allow-Origin" not in raw(rig, "GET", "/jobs", Origin="http://evil.example")[2]
    assert not marks.exists() and rig.runs() == []
    served: list[dict[str, str]] = [{}, {"Origin": f"http://{own}"}, {"Host": f"localhost:{rig.port}"},
                                    {"Host": f"[::1]:{rig.port}"}, {"Host": "127.0.0.1"}]
    for headers in served:
        status, body, _ = raw(rig, "POST", "/jobs/j/start", **headers)
        assert status == 200, (headers, body)
        rig.recorded(body["run"])
    assert marks.read_text().count("x") == len(served)


def test_no_answer_tells_what_the_server_is_made_of(rig: Rig) -> None:
    """No header names Python or the HTTP library with their versions, neither of answers nor of errors."""
    rig.start([{"name": "j", "schedule": NEVER, "command": "true"}])
    for method, path in (("GET", "/version"), ("GET", "/jobs"), ("GET", "/nothing"), ("POST", "/jobs/x/start")):
        _, _, headers = raw(rig, method, path)
        assert "Server" not in headers and "Sexton-Instance" in headers
        assert not [value for value in headers.values() if "aiohttp" in value.lower() or "python" in value.lower()]


def test_89_only_post_changes(rig: Rig) -> None:
    """Another method on a changing route is 405 and says which is allowed; nothing starts."""
    rig.start([{"name": "j", "schedule": NEVER, "command": "true"}])
    methods = ("GET", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "TRACE")
    for method, path in product(methods, ("/jobs/j/start", "/jobs/j/cancel", "/reload")):
        status, body, headers = raw(rig, method, path)
        assert status == 405 and headers["Allow"] == "POST" and (method == "HEAD" or "405" in body["error"])
    assert rig.runs() == [] and rig.http("GET", "/health")[1]["last_reload"]["added"] == 1


def test_89_bodies(rig: Rig) -> None:
    """A body of another media type is 415, a wrong shape or no JSON is 400, 10 MiB are 413; none of them starts or
    cancels anything; no body and an empty object are fine."""
    rig.start([{"name": "j", "schedule": NEVER, "command": "sleep 30", "killTimeout": 0.2}])
    big = json.dumps({"requested_by": "x" * 10 * 1024 * 1024}).encode()
    wrong: list[tuple[int, bytes, str]] = [
        (415, b"{}", "text/plain"), (415, b"a=b", "application/x-www-form-urlencoded"), (400, b"{", "application/json"),
        (400, b"[]", "application/json"), (400, b'{"requested_by": 1}', "application/json"),
        (413, big, "application/json"), (400, b'{"unknown": 1}', "application/json"),
        (400, b"\xff\xfe", "application/json"), (413, big, "text/plain"),
    ]
    for expected, body, kind in wrong:
        status, answer, _ = raw(rig, "POST", "/jobs/j/start", body, **{"Content-Type": kind})
        assert status == expected and "error" in answer, (expected, status, body[:50])
    assert rig.http("GET", "/runs")[1]["runs"] == []
    run = rig.fire()
    for expected, body, kind in wrong:
        for path in ("/jobs/j/cancel", f"/runs/{run}/cancel"):
            assert raw(rig, "POST", path, body, **{"Content-Type": kind})[0] == expected
    assert rig.run(run)["stop"] is None
    status, body, _ = raw(rig, "POST", "/jobs/j/cancel", b'{"reason": "r", "requested_by": "me"}',
                          **{"Content-Type": "application/json; charset=utf-8"})
    assert status == 200
    stop = rig.recorded(run)["stop"]
    assert (stop["reason"], stop["requested_by"], stop["cause"]) == ("r", "me", "cancel")
