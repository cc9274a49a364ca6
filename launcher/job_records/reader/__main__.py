"""Run ``python3 /opt/deeplearning/current/launcher/job_records/reader [-f] JOB LOG...``, for ``launch logs``."""

import sys
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).parents[3]))

from launcher.job_records.reader.reader import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
