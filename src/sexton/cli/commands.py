"""From a parsed command to the function that does it; from what goes wrong to one line and an exit status."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from sexton.cli.address import find_address
from sexton.cli.failures import CommandError, Misused
from sexton.cli.terminal import Screen, complain

if TYPE_CHECKING:
    from sexton.cli.client import Client


def run_command(options: Namespace, config: str) -> int:
    """Answers with the exit status; whatever there is to complain of has been said by then."""
    try:
        if options.command in ("next", "explain") and (file := _file(options)) is not None:
            return _in_file(options, file, Screen())
        return _of_daemon(options, config, Screen())
    except CommandError as failure:
        complain(f"sexton: {failure}")
        if options.command == "next" and options.job is not None and os.path.exists(options.job):
            complain(f"sexton: {options.job} is a file, not a job: `sexton next --file {options.job}` reads it")
        return failure.exit


def _file(options: Namespace) -> str | None:
    """The configuration that is asked instead of a daemon, if one is. Raises Misused."""
    file: str | None = options.file or options.config
    if file is not None and options.url is not None:
        raise Misused("a file and a --url cannot both be asked", "leave one of them out")
    return file


def _in_file(options: Namespace, file: str, screen: Screen) -> int:
    from sexton.cli import schedule

    if options.command == "next":
        return schedule.next_in_file(options, file, screen)
    return schedule.explain_in_file(options, file, screen)


def _of_daemon(options: Namespace, config: str, screen: Screen) -> int:
    from sexton.cli.client import Client

    function = function_of(options.command)
    client = Client(find_address(options.url, config, os.environ))
    try:
        return function(options, client, screen)
    finally:
        client.close()


def function_of(command: str) -> Callable[[Namespace, Client, Screen], int]:
    """Each command imports only what it needs: most of its time is start-up."""
    module, name = {
        "jobs": ("jobs", "list_jobs"),
        "runs": ("runs", "list_runs"),
        "show": ("runs", "show"),
        "logs": ("logs", "logs"),
        "start": ("control", "start"),
        "cancel": ("control", "cancel"),
        "abandon": ("control", "abandon"),
        "pause": ("control", "pause"),
        "resume": ("control", "resume"),
        "pools": ("pools", "pools"),
        "nodes": ("nodes", "nodes"),
        "reload": ("system", "reload"),
        "health": ("system", "health"),
        "next": ("schedule", "next_of_daemon"),
        "explain": ("schedule", "explain_of_daemon"),
    }[command]
    function: Callable[[Namespace, Client, Screen], int] = getattr(
        import_module(f"sexton.cli.{module}"), name
    )
    return function
