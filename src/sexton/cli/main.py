"""The `sexton` command. Scripts call it often: nothing heavy is imported before the command is known."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING

from sexton.cli.exits import Exit
from sexton.cli.options import DEFAULT_CONFIG, DaemonOptions, daemon_options

if TYPE_CHECKING:
    from argparse import Namespace


def main() -> int:
    daemon = daemon_options(sys.argv[1:])
    return _start(daemon) if daemon is not None else _parsed()


def _start(daemon: DaemonOptions) -> int:
    from sexton.cli.daemon import run_daemon

    return run_daemon(daemon.config, daemon.level)


def _parsed() -> int:
    from sexton.cli.arguments import make_parser

    parser = make_parser()
    options = parser.parse_args()
    config = options.config or DEFAULT_CONFIG
    if options.command is None and not (options.validate_config or options.job_set_id):
        return _start(DaemonOptions(config, options.log_level))
    if options.command is not None and (options.validate_config or options.job_set_id):
        flag = "-v" if options.validate_config else "--job-set-id"
        parser.error(f"{flag} stands for a command: `sexton -c PATH {flag}`")
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files need not be text
    try:
        status = _run(options, config)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # Python flushes standard output once more at its end, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return Exit.BROKEN_PIPE


def _run(options: Namespace, config: str) -> int:
    if options.command in (None, "check"):
        from sexton.cli.check import check, job_set_id

        if options.command is None:
            return job_set_id(config) if options.job_set_id else check([config], as_json=False)
        return check(options.paths, as_json=options.json)
    if options.command == "doctor":
        from sexton.cli.doctor import doctor

        return doctor(options)
    if options.command == "state":
        from sexton.cli.state import state

        return state(options, config)
    from sexton.cli.commands import run_command

    return run_command(options, config)


if __name__ == "__main__":
    sys.exit(main())
