"""Parse lines of launch in tests, and list the slots of their hosts."""

from launcher.options.parser import parse_options
from launcher.spec import JobSpec

GPUS = "DEEPLEARNING_WORKER_GPU_COUNT"
PATH = "DEEPLEARNING_WORKERS_PATH"


def parse(line: str, environ: dict[str, str]) -> JobSpec:
    return parse_options(line.split(), environ=environ)


def slots(line: str, environ: dict[str, str]) -> list[int]:
    return [host.slots for host in parse(line, environ).hosts]
