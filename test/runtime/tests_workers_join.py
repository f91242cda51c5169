"""tests_workers_join.py: processes that met over TCP are stopped for a while."""

import os
import signal
import time

from tests_workers import final
from tests_workers_tcp import codes


def test_tcp_join_suspended(t):
    """All processes stop (a suspended job, Ctrl-Z) for longer than a worker may be silent, and go on."""
    data = t.digits()
    program = dict(microbatch=16)  # one worker works, the other waits
    t.call(t.stages(1, **program), "--data", data, "--out", "one")
    processes = t.begin([t.stages(2, **program)] * 2, "--data", data, "--out", "z", "--worker-timeout", 2, env=dict(os.environ, DELAY="4000"))
    t.wait_for("z")
    for _ in range(2):
        for process in processes:
            process.send_signal(signal.SIGSTOP)
        time.sleep(3.5)
        t.check(all(process.poll() is None for process in processes), "they were at work")
        for process in processes:
            process.send_signal(signal.SIGCONT)
        time.sleep(0.3)
    results = t.finish(processes)
    t.check(codes(results) == [0, 0] and final(t, "z") == final(t, "one"), "suspended twice", repr(results))
