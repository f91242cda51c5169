"""tests_workers_join.py: how processes find one another over TCP: who does not come, who calls that nobody waits for, what lies between machines."""

import os
import re
import signal
import socket
import subprocess
import time

import programs
from cases import content
from tests_workers import final
from tests_workers_tcp import codes

NOBODY = "/bin/true"  # in the place of a worker that does not come


def hurried(seconds, **more):
    return dict(os.environ, CINCH_JOIN_SECONDS=str(seconds), **more)


def after(t, seconds, rank, program):
    """The program, but the worker of that rank begins later."""
    path = t.path("after%d" % rank)
    programs.write(path, b'#!/bin/sh\n[ $RANK = %d ] && sleep %d\nexec %s "$@"\n' % (rank, seconds, program.encode()))
    os.chmod(path, 0o755)
    return path


def listening(pid):
    """The port at which that process listens, as soon as it does."""
    until = time.time() + 10
    while time.time() < until:
        links = []
        for number in os.listdir("/proc/%d/fd" % pid):
            try:
                links.append(os.readlink("/proc/%d/fd/%s" % (pid, number)))
            except OSError:
                pass
        for table in ("tcp6", "tcp"):
            for row in content("/proc/net/" + table).decode().split("\n")[1:]:
                words = row.split()
                if words and words[3] == "0A" and "socket:[%s]" % words[9] in links:
                    return int(words[1].rsplit(":", 1)[1], 16)
        time.sleep(0.02)
    raise AssertionError("it does not listen")


def test_tcp_join_missing(t):
    """Everybody that has come hears who has not, and ends with 5."""
    data, three = t.digits(), t.stages(3)
    for missing in ([2], [1], [1, 2]):
        cast = [NOBODY if rank in missing else three for rank in range(3)]
        begun = time.time()
        results = t.together(cast, "--data", data, "--out", "m", env=hurried(2), limit=20)
        came = [result for rank, result in enumerate(results) if rank not in missing]
        words = "worker%s %s of 3 did not call within 2 s" % ("s" if len(missing) > 1 else "", ", ".join(map(str, missing)))
        t.check(codes(came) == [5] * len(came) and all(words in result[2] for result in came), "%s missing" % missing, repr(came))
        t.check(time.time() - begun < 6, "they end soon")
    results = t.together([NOBODY, three, three], "--data", data, "--out", "m", env=hurried(2), limit=20)
    t.check(codes(results[1:]) == [5, 5] and all("cannot reach worker 0 at 127.0.0.1:" in result[2] for result in results[1:]), "worker 0 missing", repr(results))
    results = t.together([three, three, NOBODY], "--data", data, "--out", "m", env=hurried(0.5), limit=20)
    t.check(all("did not call within 0.5 s" in result[2] for result in results[:2]), "half a second is called so", repr(results))
    t.refused(2, ["CINCH_JOIN_SECONDS", "`soon`"], three, env=hurried("soon", RANK="1", WORLD_SIZE="3", MASTER_ADDR="127.0.0.1", MASTER_PORT="9"))


def test_tcp_join_killed(t):
    """A worker that ends while others are waited for is noticed at once."""
    data, three = t.digits(), t.stages(3)
    for victim in (0, 1):
        processes = t.begin([three, three, NOBODY], "--data", data, "--out", "k")
        listening(processes[victim].pid)
        time.sleep(1)
        processes[victim].kill()
        results = t.finish(processes, limit=10)
        other = results[1 - victim]
        words = "worker 1 lost before all workers had joined" if victim else "worker 0 at 127.0.0.1:"
        t.check(other[0] == 5 and words in other[2] and "hung" not in other[2], "worker %d is killed" % victim, repr(results))


def test_tcp_join_strangers(t):
    """Who calls and is no worker is let alone, says it nothing, something else, or stays."""
    data, three = t.digits(), t.stages(3)
    t.call(t.stages(1), "--data", data, "--out", "one")
    processes = t.begin([after(t, 3, 2, three)] * 3, "--data", data, "--out", "s")
    port = listening(processes[0].pid)
    strangers = [socket.create_connection(("127.0.0.1", port)) for _ in range(4)]
    strangers[0].sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
    strangers[1].close()
    strangers[2].sendall(b"cinchwk2")  # the beginning of a card
    strangers += [socket.create_connection(("127.0.0.1", listening(processes[1].pid))) for _ in range(2)]
    begun = time.time()
    results = t.finish(processes, limit=30)
    t.check(codes(results) == [0, 0, 0] and final(t, "s") == final(t, "one"), "strangers call", repr(results))
    t.check(time.time() - begun < 12, "nobody waits for them", "%.1f s" % (time.time() - begun))
    for stranger in strangers:
        stranger.close()


def test_tcp_join_other_server(t):
    """Something else listens where worker 0 should."""
    two = t.stages(2)
    for said, words in ((b"HTTP/1.1 400 Bad Request\r\n" * 100, "is not worker 0 of this program"), (b"", "ended the connection")):
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.listen(5)
            env = hurried(5, RANK="1", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(server.getsockname()[1]))
            process = subprocess.Popen([two], cwd=t.folder, env=env, stderr=subprocess.PIPE, text=True)
            caller, _ = server.accept()
            caller.sendall(said)
            caller.recv(10000)
            caller.close()
            err = process.communicate(timeout=20)[1]
            t.check(process.returncode == 5 and words in err, "another server", repr((process.returncode, err)))


def test_tcp_join_unanswered(t):
    """Calls that nothing answers, as where a firewall drops them: the process says whom it waits for, and keeps its deadline."""
    two = t.stages(2)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        waiting = []
        for _ in range(3):  # whoever calls now finds no room
            caller = socket.socket()
            caller.setblocking(False)
            caller.connect_ex(server.getsockname())
            waiting.append(caller)
        time.sleep(0.2)
        env = hurried(5, RANK="1", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(server.getsockname()[1]))
        begun = time.time()
        process = subprocess.Popen([two], cwd=t.folder, env=env, stderr=subprocess.PIPE, text=True)
        try:
            err = process.communicate(timeout=15)[1]
        except subprocess.TimeoutExpired:
            process.kill()
            err = process.communicate()[1] + " (it hung)"
        seconds = time.time() - begun
        t.check(process.returncode == 5 and 4 < seconds < 8, "it ends", "%.1f s %r" % (seconds, (process.returncode, err)))
        t.check("worker 1 of 2 waits for worker 0 at 127.0.0.1:" in err and "within 5 s: Connection timed out" in err, "and says why", err)
        for caller in waiting:
            caller.close()


def test_tcp_join_rank(t):
    """A number that the world does not have, whatever the size of the world: as a world of one the process would train by itself, into the same folder."""
    for rank, world in (("1", "1"), ("2", "2"), ("5", "3")):
        env = dict(os.environ, RANK=rank, WORLD_SIZE=world, MASTER_ADDR="127.0.0.1", MASTER_PORT="9")
        t.refused(2, ["number %s of %s" % (rank, world)], t.stages(2), "--data", t.digits(), "--out", "w", env=env)
    t.check(not os.path.exists(t.path("w")), "nothing was written")


def test_tcp_join_world(t):
    """One process with another WORLD_SIZE than the others: all end with 2 at once. Worker 0 waits for those that call it, to tell them."""
    three = t.stages(3)
    for rank, world in ((1, "2"), (2, "4"), (0, "2"), (0, "4")):
        cast = [three] * 3
        cast[rank] = (after(t, 1, rank, three), dict(WORLD_SIZE=world))
        begun = time.time()
        results = t.together(cast, "--data", t.digits(), "--out", "w", limit=20)
        t.check(codes(results) == [2, 2, 2] and time.time() - begun < 5, "all end with 2", repr(results))
        t.check("the program has 3 workers" in results[rank][2] and "started %s processes" % world in results[rank][2], "the one itself says it", repr(results))
        words = "worker %d at .* was started as one of %s, worker 0 at .* as one of 3" % (rank, world)
        if rank == 0:
            words = "worker [12] at .* was started as one of 3, worker 0 at .* as one of %s" % world
        t.check(all(re.search(words, results[other][2]) for other in range(3) if other != rank), "the others hear it", repr(results))


def test_tcp_join_told(t):
    """One process that is told something else: the others hear why, whether they wait already, have just called or call a little later."""
    four = t.stages(4)
    for late in (0, 2, 3):
        path = t.path("told")
        lines = b'#!/bin/sh\n[ $RANK = 1 ] && exec %s --steps 3 "$@"\n[ $RANK = %d ] && sleep 0.5\nexec %s "$@"\n' % (four.encode(), late, four.encode())
        programs.write(path, lines)
        os.chmod(path, 0o755)
        for _ in range(4):
            results = t.together([path] * 4, "--data", t.digits(), "--out", "told-out", limit=20)
            t.check(codes(results) == [2] * 4 and all("was started with `--steps 3`" in result[2] for result in results), "late: %d" % late, repr(results))


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


# ---- Machines: network namespaces in their place

class Machines:
    """Worker 0's machine is at 10.77.N.1 for machine N, which is at 10.77.N.2. The others do not reach one another."""

    def __init__(self, others):
        self.names = ["cinch%d-%d" % (os.getpid(), i) for i in range(others + 1)]

    def ip(self, *words):
        return subprocess.run(["ip", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def __enter__(self):
        first, made = self.names[0], []
        for i, name in enumerate(self.names):
            made += [self.ip("netns", "add", name), self.ip("-n", name, "link", "set", "lo", "up")]
            if i:
                made.append(self.ip("-n", first, "link", "add", "to%d" % i, "type", "veth", "peer", "name", "to0", "netns", name))
                for where, link, end in ((first, "to%d" % i, 1), (name, "to0", 2)):
                    made += [self.ip("-n", where, "address", "add", "10.77.%d.%d/24" % (i, end), "dev", link), self.ip("-n", where, "link", "set", link, "up")]
        failed = [done for done in made if done.returncode]
        self.there = not failed
        if failed:
            print("note: no network namespaces here (%s): nothing was tried between machines" % failed[0].stdout.strip())
        return self

    def __exit__(self, *_):
        for name in self.names:
            self.ip("netns", "delete", name)

    def on(self, t, machines, program):
        """The program, each worker on its machine; who shares that of worker 0 calls it by the loopback."""
        path = t.path("on-machines")
        lines = ["#!/bin/sh", "case $RANK in"]
        for rank, machine in enumerate(machines):
            address = "10.77.%d.1" % machine if machine else "127.0.0.1"
            lines.append('%d) MASTER_ADDR=%s exec ip netns exec %s %s "$@";;' % (rank, address, self.names[machine], program))
        programs.write(path, "\n".join([*lines, "esac", ""]).encode())
        os.chmod(path, 0o755)
        return [path] * len(machines)


def test_tcp_join_itself(t):
    """The port is among those that the system gives out to who calls: before worker 0 listens there, a call of it can be answered by itself."""
    data, two = t.digits(), t.stages(2)
    with Machines(0) as machines:
        if not machines.there:
            return
        few = ["ip", "netns", "exec", machines.names[0], "sh", "-c", "echo 40000 40003 > /proc/sys/net/ipv4/ip_local_port_range"]
        subprocess.run(few, check=True)
        cast = [(path, dict(MASTER_PORT="40000")) for path in machines.on(t, (0, 0), after(t, 3, 0, two))]
        results = t.together(cast, "--data", data, "--out", "i", env=hurried(8), limit=20)
        t.check(codes(results) == [0, 0], "worker 1 does not take itself for worker 0", repr(results))


def test_tcp_join_loopback(t):
    """Worker 1 calls worker 0 over the loopback, as where the name in MASTER_ADDR stands for 127.0.1.1 on its own machine; worker 2 calls worker 1 from
    another machine."""
    data = t.digits()
    t.call(t.stages(1), "--data", data, "--out", "one")
    with Machines(1) as machines:
        for where in ((0, 0, 1), (0, 1, 0), (0, 1, 1)) if machines.there else ():
            out = "".join(map(str, where))
            results = t.together(machines.on(t, where, t.stages(3)), "--data", data, "--out", out, env=hurried(6), limit=30)
            t.check(codes(results) == [0, 0, 0] and final(t, out) == final(t, "one"), "machines %s" % (where,), repr(results))


def test_tcp_join_unreachable(t):
    """Workers that reach worker 0, but not one another: all say who does not reach whom."""
    data = t.digits()
    with Machines(2) as machines:
        if machines.there:
            results = t.together(machines.on(t, (0, 1, 2), t.stages(3)), "--data", data, "--out", "u", env=hurried(2), limit=30)
            words = r"worker 2 cannot reach worker 1 at 10\.77\.1\.2:\d+ within 2 s: "
            t.check(codes(results) == [5, 5, 5] and all(re.search(words, err) for _, _, err in results), "no way between them", repr(results))
