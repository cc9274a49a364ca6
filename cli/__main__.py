"""Run ``dlcluster`` as ``python -m cli``."""

from cli.main import console_script

if __name__ == "__main__":
    console_script()
