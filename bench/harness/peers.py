"""PyTorch and JAX as workers: processes that run one step when asked (bench/peers/worker.py)."""
import os
import pathlib
import subprocess

from harness import programs

PEERS = programs.BENCH / "peers"
PYTHON = pathlib.Path(os.environ.get("PEERS_VENV", PEERS / "venv")) / "bin" / "python"


class Peer:
    def __init__(self, script, sizes, rate, threads, errors):
        values = [text for key, value in sizes.items() for text in ("--" + key, str(value))]
        self.process = subprocess.Popen([str(PYTHON), str(PEERS / script[0]), *script[1:], *values, "--rate", str(rate),
                                         "--threads", str(threads)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                                        env={**os.environ, "OMP_NUM_THREADS": str(threads), "JAX_PLATFORMS": "cpu"})
        if self.answer() != "ready":
            raise programs.Failed(f"{script[0]} did not start")

    def answer(self):
        line = self.process.stdout.readline().strip()
        if not line:
            self.process.kill()
            raise programs.Failed("a peer ended early")
        return line

    def ask(self, order):
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()
        return self.answer()

    def warm(self):
        for _ in range(2):
            self.step()

    def step(self):
        return float(self.ask("step").split()[0])

    def end(self):
        peak = int(self.ask("peak"))
        self.process.stdin.close()
        self.process.wait()
        return peak


def installed(module):
    return PYTHON.exists() and subprocess.run([str(PYTHON), "-c", f"import {module}"], capture_output=True).returncode == 0
