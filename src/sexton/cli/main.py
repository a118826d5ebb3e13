"""The `sexton` command. Nothing heavy is imported before the command is known: it is called from scripts, often."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from sexton import __version__

DEFAULT_CONFIG = "/etc/sexton.d"


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sexton", description="A job scheduler: runs start on time, and end for certain.",
        epilog="Without a command, the daemon runs in the foreground.",
    )
    parser.add_argument("-c", "--config", metavar="PATH", default=DEFAULT_CONFIG,
                        help=f"configuration file or folder (default {DEFAULT_CONFIG})")
    parser.add_argument("-l", "--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"],
                        type=str.upper, help="log level of the daemon (default INFO)")
    parser.add_argument("-v", "--validate-config", action="store_true", help="check the configuration and exit")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    checking = commands.add_parser("check", help="check a configuration: all errors, with their places")
    checking.add_argument("path")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = make_parser().parse_args(arguments)
    if options.command == "check":
        from sexton.cli.daemon import check

        return check(options.path)
    if options.validate_config:
        from sexton.cli.daemon import check

        return check(options.config)
    from sexton.cli.daemon import run_daemon

    return run_daemon(options.config, options.log_level)


if __name__ == "__main__":
    sys.exit(main())
