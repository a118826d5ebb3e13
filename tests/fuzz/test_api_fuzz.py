"""The API against its own OpenAPI document: requests made by schemathesis, from what the document allows and from what
it does not."""

from __future__ import annotations

import random
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase
from rig import Rig
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES = 25
HINTS = {"name": ["j", "a/b", "boot", "off"], "expr": ["* * * * *", "H H * * *", "0 0 30 2 *", "@reboot", "0 0 29 2 1"]}


@pytest.fixture(scope="module")
def document(daemon: Rig) -> dict[str, Any]:
    status, found = daemon.http("GET", "/openapi.json")
    assert status == 200 and found["openapi"] == "3.1.0"
    result: dict[str, Any] = found
    return result


def test_the_document_names_every_route(document: dict[str, Any]) -> None:
    """Each route of the table stands in the served document, each operation with its own id."""
    from sexton.api.server import ROUTES

    served = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert served == {(route.method, route.path) for route in ROUTES}
    ids = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len(ids) == len(set(ids))


def test_the_api_keeps_to_its_document(daemon: Rig, document: dict[str, Any]) -> None:
    """No request, of the right form or not, makes a server error or an answer that the document does not have. Known
    names and run ids are mixed in, so that the deeper answers are reached, too."""
    # /jobs/{name}/logs ends by itself: no job of this daemon runs for long, so the stream of events is no endless one.
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=f"http://127.0.0.1:{daemon.port}")
    runs = [run["id"] for run in daemon.http("GET", "/runs")[1]["runs"]]
    rng = random.Random(1)
    for result in schema.get_all_operations():
        operation = result.ok()

        @hypothesis.settings(max_examples=EXAMPLES, deadline=None, database=None, derandomize=True,
                             phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
        @hypothesis.given(case=operation.as_strategy())
        def ask(case: schemathesis.Case) -> None:
            if rng.random() < 0.6:
                _aim(case, runs, rng)
            case.call_and_validate(checks=CHECKS, timeout=20)

        ask()
    health = daemon.http("GET", "/health")[1]
    assert health["status"] in ("ok", "degraded") and "Traceback" not in daemon.log()


def _aim(case: schemathesis.Case, runs: list[str], rng: random.Random) -> None:
    if "name" in (case.path_parameters or {}):
        case.path_parameters["name"] = rng.choice(HINTS["name"])
    if "id" in (case.path_parameters or {}):
        case.path_parameters["id"] = rng.choice(runs)
    if case.path.endswith("preview"):
        case.query = {**(case.query or {}), "expr": rng.choice(HINTS["expr"])}
