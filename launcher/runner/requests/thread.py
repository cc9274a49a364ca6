"""Carry out the launcher's requests one by one in a separate thread.

Disks and other nodes may be slow, and heartbeats must not wait for them.
"""

import os
import queue
import select
import threading
from contextlib import suppress

from launcher.runner.inbox import Inbox
from launcher.runner.requests.server import RequestServer
from launcher.runner.runner_channel import RunnerChannel
from launcher.runner.sync.byte_queue import ByteQueue
from launcher.spec import NodeSpec
from launcher.transport.messages import Answer, Request, pack_answer
from launcher.transport.protocol import FrameType


def serve_requests_before_spec(channel: RunnerChannel, inbox: Inbox, *, first: "Request | bytes") -> NodeSpec | None:
    """Serve requests, beginning with `first`, until the spec arrives; return None if the launcher is gone."""
    thread = RequestThread(channel)
    thread.submit(first)
    received = b""
    while not channel.stop_requested:
        for message in inbox.add(received):
            if not isinstance(message, (bytes, dict)):
                message.environment.update(thread.secrets)
                return message
            thread.submit(message)
        # Leave input unread when there is no room, so that the launcher waits.
        sources = [thread.wakeup] if thread.is_full else [thread.wakeup, channel.source]
        timeout = channel.keep_alive()
        readable, _, _ = select.select(sources, [channel.sink] if channel.has_pending else [], [], timeout)
        channel.flush()
        thread.send_answers()
        if thread.is_full:
            channel.count_unread_input_as_heartbeat()
        received = channel.receive() if channel.source in readable else b""
    return None


class RequestThread:
    """Queues of requests to the thread and of its answers; the first request starts the thread."""

    def __init__(self, channel: RunnerChannel) -> None:
        self._channel = channel
        self.wakeup, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        """Descriptor that becomes readable when there is an answer to send, or room again."""
        self.secrets: dict[str, str] = {}
        """Values of the ranks' secret variables; complete once the request for them is answered."""
        self._byte_queue = ByteQueue(on_room=self._wake)
        self._requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer | BaseException] = queue.SimpleQueue()
        self._started = False

    @property
    def is_full(self) -> bool:
        """Return True if the channel should stop reading for now."""
        return self._byte_queue.is_full

    def submit(self, message: Request | bytes) -> None:
        """Pass a request, or a piece of the files, to the thread."""
        if isinstance(message, bytes):
            self._byte_queue.put(message)
            return
        self._requests.put(message)
        if not self._started:
            self._started = True
            threading.Thread(target=self._work, daemon=True).start()

    def send_answers(self) -> None:
        """Send the available answers."""
        with suppress(BlockingIOError):
            os.read(self.wakeup, 64)
        with suppress(queue.Empty):
            while True:
                answer = self._answers.get_nowait()
                if isinstance(answer, BaseException):
                    raise answer
                self._channel.send(FrameType.ANSWER, pack_answer(answer))

    def _work(self) -> None:
        server = RequestServer(self._byte_queue, secrets=self.secrets, report=self._answer)
        while True:
            try:
                self._answer(server.answer(self._requests.get()))
            except BaseException as error:  # A bug must end the runner, not only the thread.
                self._answer(error)

    def _answer(self, answer: Answer | BaseException) -> None:
        self._answers.put(answer)
        self._wake()

    def _wake(self) -> None:
        with suppress(BlockingIOError):
            os.write(self._waker, b"\0")
