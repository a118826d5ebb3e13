"""Where a job's figures are sent to as statsd datagrams."""

from __future__ import annotations

import msgspec


class StatsdSettings(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    prefix: str
    host: str
    port: int
