"""cases.py: counting, folders, and running a program under a time limit."""

import os
import socket
import subprocess
import time
import traceback

import programs
import stages_program


class Cases:
    def __init__(self, folder, archive, times=3):
        """times: runs of a test that looks for something rare."""
        self.base, self.archive, self.times = folder, archive, times
        self.passed = self.failed = 0
        self.name, self.built = "", {}

    def run(self, name, test):
        self.name = name
        self.folder = os.path.join(self.base, name)
        os.makedirs(self.folder)
        try:
            test(self)
        except Exception:
            self.failed += 1
            print("FAILED %s: exception\n%s" % (name, traceback.format_exc(limit=-2)))

    def check(self, good, what, detail=""):
        if good:
            self.passed += 1
        else:
            self.failed += 1
            print("FAILED %s: %s %s" % (self.name, what, detail))
        return good

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def linear(self, defines=None, **more):
        """linear.c, built once for every set of arguments."""
        key = repr((defines, sorted(more.items(), key=lambda item: item[0])))
        if key not in self.built:
            meta, layout = programs.linear_meta(**more)
            layout.update(defines or {})
            self.built[key] = programs.build(
                self.base, self.archive, "linear.c", meta, layout, "linear%d" % len(self.built)
            )
        return self.built[key]

    def stages(self, workers, defines=None, **more):
        """stages.c for so many workers, built once for every set of arguments."""
        key = "stages" + repr((workers, defines, sorted(more.items(), key=lambda item: item[0])))
        if key not in self.built:
            meta, layout = stages_program.stages_meta(workers, **more)
            layout.update(defines or {})
            self.built[key] = programs.build(self.base, self.archive, "stages.c", meta, layout, "stages%d" % len(self.built))
        return self.built[key]

    def recorder(self, *arguments, **more):
        meta, layout = programs.recorder_meta(*arguments, **more)
        name = "recorder%d" % len(self.built)
        self.built[name] = programs.build(self.base, self.archive, "recorder.c", meta, layout, name)
        return self.built[name]

    def digits(self):
        programs.digits(self.folder, "train", 150, 1)
        programs.digits(self.folder, "valid", 50, 2)
        return self.folder

    def call(self, program, *arguments, **more):
        """(exit code, standard output, standard error); more: preexec_fn, env."""
        done = subprocess.run(
            [program, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=120,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            **more
        )
        return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")

    def wait_for(self, when):
        """Seconds; or the folder of a run, until its log has a row: a step is done then."""
        if not isinstance(when, str):
            time.sleep(when)
            return
        log, until = self.path(when, "log.csv"), time.time() + 30
        while time.time() < until and not (os.path.exists(log) and content(log).count(b"\n") > 1):
            time.sleep(0.02)

    def begin(self, programs_, *arguments, env=None):
        """Starts one process a worker, to meet over TCP. `programs_`: one a worker; with a pair, what is other in its environment."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        world = len(programs_)
        processes = []
        for rank, program in enumerate(programs_):
            own = dict(env or os.environ, RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
            if isinstance(program, tuple):
                program, changes = program
                own.update(changes)
            processes.append(
                subprocess.Popen([program, *map(str, arguments)], cwd=self.folder, env=own, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            )
        return processes

    def finish(self, processes, limit=60):
        """A list of (exit code, output, errors)."""
        results, until = [], time.time() + limit
        for process in processes:
            try:
                out, err = process.communicate(timeout=max(0.1, until - time.time()))
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                err += b" (it hung)"
            results.append((process.returncode, out.decode(errors="replace"), err.decode(errors="replace")))
        return results

    def together(self, programs_, *arguments, env=None, kill=None, limit=60):
        """Runs one process a worker over TCP: what `finish` returns. kill: (worker, when, signal), see `wait_for`."""
        processes = self.begin(programs_, *arguments, env=env)
        if kill:
            self.wait_for(kill[1])
            processes[kill[0]].send_signal(kill[2])
        return self.finish(processes, limit)

    def refused(self, code, parts, program, *arguments, **more):
        """The program must end with `code` and a message with all `parts`."""
        got, out, err = self.call(program, *arguments, **more)
        self.check(
            got == code and all(part in err for part in parts),
            "%s is refused with %d" % (" ".join(map(str, arguments))[-60:], code),
            "got %d: %s%s, expected %s" % (got, out[-200:], err, parts),
        )
        return err


def content(path):
    with open(path, "rb") as file:
        return file.read()
