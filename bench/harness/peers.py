"""PyTorch and JAX as workers: processes that run steps when asked (bench/peers/worker.py)."""
import json
import os
import pathlib
import subprocess

from harness import programs

PEERS = programs.BENCH / "peers"
PYTHON = pathlib.Path(os.environ.get("PEERS_VENV", PEERS / "venv")) / "bin" / "python"
# Memory that the C library keeps instead of handing it back, in huge pages: the setting under which PyTorch is fastest, and large.
KEPT = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=17179869184:glibc.malloc.trim_threshold=17179869184"}


class Peer:
    """One framework with one of its settings; `losses` has the loss of every order."""

    def __init__(self, framework, network, sizes, rate, variant, kept, weights, data, threads, errors):
        command = [str(PYTHON), str(PEERS / f"{framework}_worker.py"), network, "--sizes", json.dumps(sizes), "--rate", str(rate),
                   "--threads", str(threads), "--variant", variant, "--weights", str(weights), "--data", str(data)]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "JAX_PLATFORMS": "cpu", **(KEPT if kept else {})}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
        self.losses = []
        word, *imported = self.answer().split()
        if word != "ready":
            raise programs.Failed(f"{framework} did not start")
        self.imported = int(imported[0])

    def answer(self):
        line = self.process.stdout.readline().strip()
        if not line:
            self.process.kill()
            raise programs.Failed("a peer ended early")
        return line

    def ask(self, order):
        try:
            self.process.stdin.write(order + "\n")
            self.process.stdin.flush()
        except BrokenPipeError as broken:
            raise programs.Failed("a peer ended early") from broken
        return self.answer()

    def steps(self, count=1, order="warm"):
        """Seconds a step, behind some that are not timed; with the order `step` without them."""
        seconds, loss = map(float, self.ask(f"{order} {count}").split())
        self.losses.append(loss)
        return seconds

    def end(self):
        """The most bytes that the process held."""
        peak = int(self.ask("peak"))
        self.process.stdin.close()
        self.process.wait()
        return peak


def installed(module):
    return PYTHON.exists() and subprocess.run([str(PYTHON), "-c", f"import {module}"], capture_output=True).returncode == 0
