"""Which reader reads which kind of value."""

from __future__ import annotations

from collections.abc import Mapping

from sexton.config import addresses, caps, failing, reports, secrets, surroundings, values
from sexton.config.reading import Read
from sexton.config.schema import Kind

READERS: Mapping[Kind, Read] = {
    Kind.TEXT: values.text,
    Kind.BOOLEAN: values.boolean,
    Kind.INTEGER: values.integer,
    Kind.NUMBER: values.number,
    Kind.CHOICE: values.choice,
    Kind.NAME: values.name,
    Kind.COMMAND: values.command,
    Kind.SCHEDULE: values.schedule,
    Kind.FAILS_WHEN: values.fails_when,
    Kind.RETRY: failing.retry,
    Kind.VERIFY: failing.verify,
    Kind.SLA: failing.sla,
    Kind.RETRY_ON: failing.retry_on,
    Kind.TEXT_LIST: values.text_list,
    Kind.TIMEZONE: surroundings.timezone,
    Kind.ENVIRONMENT: surroundings.environment,
    Kind.VARIABLE_VALUE: surroundings.variable_value,
    Kind.ENV_FILE: surroundings.env_file,
    Kind.DIRECTORY: surroundings.directory,
    Kind.ACCOUNT: surroundings.account,
    Kind.PREFIX: surroundings.prefix,
    Kind.LISTEN: addresses.listen,
    Kind.HEADERS: addresses.headers,
    Kind.MODE: addresses.mode,
    Kind.IDENTIFIER: addresses.identifier,
    Kind.LIMITS: caps.limits,
    Kind.CPUS: caps.cpus,
    Kind.SIZE: caps.size,
    Kind.COUNT: caps.count,
    Kind.MONITORING: caps.monitoring,
    Kind.MAP: reports.nested,
    Kind.TEMPLATE: reports.template,
    Kind.TEMPLATE_LIST: reports.template_list,
    Kind.TEXT_MAP: reports.text_pairs,
    Kind.SECRET: secrets.secret,
    Kind.SECRETS: secrets.secrets,
    Kind.SECRET_VALUE: secrets.secret_value,
}
