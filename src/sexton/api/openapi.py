"""The OpenAPI 3.1 document, made from the route table and the msgspec types."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from sexton import __version__
from sexton.api.routes import Answer, Media, Route

EVENT = {"type": "object", "required": ["event", "data"],
         "properties": {"event": {"enum": ["line", "end"]}, "data": {"type": "string", "description": "JSON"}}}
"""One event of a stream: what a schema of text/event-stream describes."""
REF = "#/components/schemas/{name}"


def document(routes: Sequence[Route]) -> dict[str, Any]:
    types = [a.type for route in routes for a in route.answers.values() if a.type is not None]
    types += [route.body for route in routes if route.body is not None]
    unique = list(dict.fromkeys(types))
    schemas, components = msgspec.json.schema_components(unique, ref_template=REF)
    by_type = dict(zip(unique, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, by_type)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Sexton", "version": __version__,
                 "description": "Jobs, runs and their ends. Every error answer is {\"error\": reason}."},
        "paths": paths,
        "components": {"schemas": components},
    }


def _operation(route: Route, by_type: dict[Any, Any]) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    parameters += [
        {"name": p.name, "in": "query", "required": False, "schema": p.schema, "description": p.description}
        for p in route.parameters
    ]
    operation: dict[str, Any] = {
        "operationId": f"{route.method.lower()}{re.sub(r'[^a-zA-Z]+', '_', route.path)}".rstrip("_"),
        "summary": route.summary,
        "parameters": parameters,
        "responses": {str(status): _response(a, by_type) for status, a in sorted(route.answers.items())},
    }
    if route.body is not None:
        operation["requestBody"] = {"required": False, "content": {"application/json": {"schema": by_type[route.body]}}}
    return operation


def _response(answer: Answer, by_type: dict[Any, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if answer.media is not Media.JSON:
        content[answer.media.value] = {"schema": EVENT if answer.media is Media.EVENTS else {"type": "string"}}
    if answer.type is not None:
        content["application/json"] = {"schema": by_type[answer.type]}
    return {"description": answer.description} | ({"content": content} if content else {})
