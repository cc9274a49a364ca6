"""Run the control plane: ``python -m local.control_plane --host 0.0.0.0 --port 5000``."""

import argparse
import logging
import signal
import sys
from pathlib import Path

from local.control_plane.server import ServerStartError, create_server


def main(arguments: list[str] | None = None) -> int:
    """Serve until a signal ends the process."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    # End on a plain kill as on Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        server = create_server(
            host=options.host,
            port=options.port,
            region=options.region,
            request_log_file=options.request_log,
            api_fault_file=options.api_faults,
            capacity_file=options.capacities,
            quota_file=options.quotas,
            change_file=options.changes,
            schedule_minute_s=options.schedule_minute,
        )
    except ServerStartError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"listening on {options.host} port {server.port}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        return 0
    finally:
        server.server_close()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m local.control_plane", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=5000, help="0 picks a free port")
    parser.add_argument("--region", default="us-east-1", help="where the machine images are known")
    parser.add_argument("--request-log", type=Path, metavar="PATH", help="append one JSON line per request")
    parser.add_argument("--api-faults", type=Path, metavar="PATH", help="which requests of nodes fail, as JSON")
    parser.add_argument("--capacities", type=Path, metavar="PATH", help="how many instances fit in a zone, as JSON")
    parser.add_argument("--quotas", type=Path, metavar="PATH", help="limits of the account by quota, as JSON")
    parser.add_argument("--changes", type=Path, metavar="PATH", help="append a byte when what exists may have changed")
    parser.add_argument(
        "--schedule-minute",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="real seconds per minute of a schedule's rate() (default 60)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
