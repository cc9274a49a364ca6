"""Run as the job under faults: connect the ranks, take steps together, and resume from the last one after a restart.

    launch python -c "$(cat job_script.py)" RENDEZVOUS_S STEPS STEPS_AGAIN STEP_S TOKEN

The token marks the job's record. Standard library only. A rank that loses another exits with LOST; a disconnected rank
hangs, like a framework's.
"""

import contextlib
import os
import socket
import sys
import time
from pathlib import Path

LOST = 9


def log(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def rendezvous(rank: int, world: int, address: tuple[str, int]) -> list[socket.socket]:
    """Connect rank 0 to all others: return rank 0's connections, or another rank's to rank 0."""
    if rank == 0:
        with socket.create_server(address, backlog=world) as server:
            return [server.accept()[0] for _ in range(world - 1)]
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            return [socket.create_connection(address)]
        time.sleep(0.05)


def lead(others: list[socket.socket], *, step_file: Path, steps: int, step_s: float) -> None:
    """Take steps with all other ranks, and save the number of the last one."""
    done = int(step_file.read_text()) if step_file.exists() else 0
    log(f"resumes at {done}")
    for _ in range(steps):
        time.sleep(step_s)
        for other in others:
            other.sendall(b"s")
        for other in others:
            receive(other, b"s")
        done += 1
        partial = step_file.with_suffix(".new")
        partial.write_text(str(done))
        partial.replace(step_file)
    for other in others:
        other.sendall(b"e")


def follow(leader: socket.socket) -> None:
    """Take the same steps as rank 0."""
    log("resumes")
    while receive(leader, b"s", b"e") == b"s":
        leader.sendall(b"s")


def receive(other: socket.socket, *expected: bytes) -> bytes:
    message = other.recv(1)
    if message not in expected:
        raise ConnectionResetError
    return message


def main() -> int:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    is_restart = os.environ["TORCHELASTIC_RESTART_COUNT"] != "0"
    rendezvous_s, step_s, steps = float(sys.argv[1]), float(sys.argv[4]), int(sys.argv[3 if is_restart else 2])
    log(f"joins {world} ranks")
    time.sleep(rendezvous_s * rank / max(1, world - 1))
    try:
        others = rendezvous(rank, world, (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
        if rank == 0:
            step_file = Path(f"/var/tmp/{os.environ['TORCHELASTIC_RUN_ID']}.step")  # noqa: S108  (only rank 0 uses this file)
            lead(others, step_file=step_file, steps=steps, step_s=step_s)
        else:
            follow(others[0])
    except ConnectionError:
        log("lost a rank")
        return LOST
    log("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
