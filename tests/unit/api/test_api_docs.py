"""The API's reference page against the route table and the types."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sexton.api import views
from sexton.api.openapi import document
from sexton.api.routes import Route
from sexton.api.server import ROUTES
from sexton.api.use import Resources
from sexton.daemon.health import Health
from sexton.daemon.reload import ReloadResult
from sexton.model.limits import LimitFacts, Mechanism
from sexton.model.run import Gone, GoneState, Outcome, Phase, Stop, StopCause, Trigger, Witness

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "api.md").read_text()


def section(heading: str) -> str:
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, f"no section {heading!r}"
    return found[1]


def rows(text: str) -> dict[str, str]:
    """First column -> the rest, of the tables in a text."""
    return dict(re.findall(r"^\| `([^`]+)` \|(.*)\|$", text, re.MULTILINE))


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_is_on_the_page(route: Route) -> None:
    """With all its parameters, the fields of its body, and exactly its statuses."""
    row = rows(section("Routes")).get(f"{route.method} {route.path}")
    assert row is not None
    asked, statuses = row.split("|")[:2]
    assert {int(number) for number in re.findall(r"\d{3}", statuses)} == set(route.answers)
    fields = {field.name for field in msgspec.structs.fields(route.body)} if route.body else set()
    assert set(re.findall(r"`(\w+)`", asked)) == {parameter.name for parameter in route.parameters} | fields


def test_no_route_is_made_up() -> None:
    """The page has no route that is not in the table."""
    assert set(rows(section("Routes"))) == {f"{route.method} {route.path}" for route in ROUTES}


@pytest.mark.parametrize(("heading", "kind"), [
    ("A run", views.RunView), ("A job", views.JobView), ("`stop`", Stop), ("`gone`", Gone),
    ("`resources`", Resources), ("`limits`", LimitFacts), ("Health", Health),
    ("A reload", ReloadResult),
])
def test_every_field_has_its_meaning(heading: str, kind: type[Any]) -> None:
    """Each field of the type stands in its table, with some words, and no other."""
    found = rows(section(heading))
    assert set(found) == {field.encode_name for field in msgspec.structs.fields(kind)}
    assert all(meaning.strip() for meaning in found.values())


@pytest.mark.parametrize(
    "values", [Outcome, Phase, Trigger, StopCause, GoneState, Witness, Mechanism], ids=lambda kind: kind.__name__)
def test_every_value_is_named(values: Any) -> None:
    """All values that a field can have are on the page."""
    assert {value.value for value in values} <= set(re.findall(r"`([\w-]+)`", PAGE))


def test_the_document_is_whole() -> None:
    """OpenAPI 3.1: every reference leads to a schema, every path parameter is declared."""
    made = document(ROUTES)
    text = msgspec.json.encode(made).decode()
    names = set(re.findall(r'"#/components/schemas/([^"]+)"', text))
    assert names <= set(made["components"]["schemas"]) and made["openapi"] == "3.1.0"
    for path, operations in made["paths"].items():
        for operation in operations.values():
            declared = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
            assert declared == set(re.findall(r"{(\w+)}", path))
