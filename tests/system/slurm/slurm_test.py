"""A job array of deploy/slurm on Debian's real Slurm: munged, slurmctld and slurmd are children of this script with a
configuration, keys, ports and folders of their own, on loopback; nothing of the machine's own Slurm is used or changed.

usage: slurm_test.py CARAT FOLDER_OF_DAEMONS [unittest's arguments]
"""

import getpass
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../deploy"))
from fleet import SOURCES, free_port, wait_until  # noqa: E402

CARAT, DAEMONS = sys.argv[1:3]
SCRIPT = os.path.join(SOURCES, "deploy/slurm/carat-batch.sh")
LINES = 90

CONFIG = """
ClusterName=carat-test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
KillWait=5
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 Port={node_port} CPUs=2
PartitionName=all Nodes=ALL Default=YES MaxTime=60 State=UP
"""


class Slurm:
    """One machine: controller and node in one."""

    def __init__(self, folder):
        self.folder = folder
        self._children = []
        for name in ("munge", "state", "spool"):
            os.mkdir(os.path.join(folder, name), 0o711)
        self._config = os.path.join(folder, "slurm.conf")
        with open(self._config, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(host=socket.gethostname().split(".")[0], controller_port=free_port(),
                                     node_port=free_port(), folder=folder, user=getpass.getuser()))
        self._environment = {**os.environ, "SLURM_CONF": self._config, "CARAT": CARAT}

    def start(self):
        munge = os.path.join(self.folder, "munge")
        with open(os.path.join(munge, "key"), "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as key:
            key.write(os.urandom(128))
        self._run("munged", "--foreground", "--force", *(f"--{name}-file={munge}/{name}" for name in ("key", "pid", "log", "seed")),
                  f"--socket={munge}/socket")
        self._wait(lambda: os.path.exists(f"{munge}/socket"), "munged")
        self._run("slurmctld", "-D", "-f", self._config)
        self._run("slurmd", "-D", "-f", self._config)
        self._wait(lambda: "idle" in self.command("sinfo", "--noheader", "--format=%T", may_fail=True), "a node")

    def _run(self, name, *arguments):
        path = shutil.which(name, path=os.pathsep.join([DAEMONS, os.environ["PATH"], "/usr/sbin"]))
        with open(os.path.join(self.folder, name + ".log"), "wb") as log:
            self._children.append((name, subprocess.Popen([path, *arguments], env=self._environment, stdin=subprocess.DEVNULL,
                                                          stdout=log, stderr=log)))

    def _wait(self, condition, what):
        """Or ends the test as skipped, with what the daemons said."""
        end = time.monotonic() + 20
        while not condition():
            ended = [name for name, child in self._children if child.poll() is not None]
            if ended or time.monotonic() > end:
                print(f"skipped: Slurm does not start here: no {what}, ended: {ended}; {self.last_words()}")
                sys.exit(77)
            time.sleep(0.1)

    def last_words(self):
        words = []
        for name, _ in self._children:
            with open(os.path.join(self.folder, name + ".log"), encoding="utf-8", errors="replace") as log:
                words.append(f"{name}: " + " | ".join(log.read().splitlines()[-4:]))
        return "; ".join(words)

    def command(self, *words, may_fail=False):
        ended = subprocess.run(words, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert may_fail or ended.returncode == 0, (words, ended.stdout)
        return ended.stdout

    def submit(self, array, *arguments):
        said = self.command("sbatch", f"--array={array}", "--cpus-per-task=1", "--gres=none", "--time=10", "--signal=B:USR1@10",
                            f"--output={self.folder}/log-%a", SCRIPT, *arguments)
        return int(re.search(r"batch job (\d+)", said).group(1))

    def state(self, job, task):
        shown = self.command("scontrol", "show", "job", f"{job}_{task}")
        return re.search(r"JobState=(\w+)", shown).group(1), int(re.search(r"Restarts=(\d+)", shown).group(1))

    def wait_for(self, job, tasks, states):
        wait_until(lambda: all(self.state(job, task)[0] in states for task in tasks), f"job {job} to be {states}")

    def log(self, task):
        with open(os.path.join(self.folder, f"log-{task}"), encoding="utf-8") as log:
            return log.read()

    def stop(self):
        self.command("scancel", f"--user={getpass.getuser()}", may_fail=True)
        wait_until(lambda: not self.command("squeue", "--noheader", may_fail=True), "jobs to end", 20)
        for _, child in reversed(self._children):
            child.terminate()
        for _, child in self._children:
            child.wait(20)


def pid_of_task(output):
    """Of carat that writes this output; none where it does not run."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().decode(errors="replace").split("\0")
        except OSError:
            continue
        if words[:2] == [CARAT, "batch"] and output in words:
            return int(pid)
    return None


def lines_of(*paths):
    lines = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            lines += map(json.loads, file)
    return lines


def said(line):
    return line["id"], line["custom_id"], line["response"]["body"]["choices"][0]["text"]


class Array(unittest.TestCase):
    FLAGS = ("--device", "cpu", "-c", "256", "-np", "2", "--temp", "0")

    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=SLURM.folder)
        self.input = os.path.join(self.folder, "in.jsonl")
        with open(self.input, "w", encoding="utf-8") as file:
            for i in range(LINES):
                body = {"prompt": f"nginx is number {i}:", "max_tokens": 40, "ignore_eos": True}
                json.dump({"custom_id": f"c{i}", "method": "POST", "url": "/v1/completions", "body": body}, file)
                file.write("\n")
        self.output = os.path.join(self.folder, "parts")

    def part(self, task):
        return os.path.join(self.output, f"part-{task:05d}.jsonl")

    def test_an_array_answers_all_whatever_happens_to_its_tasks(self):
        whole = os.path.join(self.folder, "whole.jsonl")
        subprocess.run([CARAT, "batch", self.input, whole, "-t", "1", *self.FLAGS], check=True, stderr=subprocess.DEVNULL)
        job = SLURM.submit("1-3", self.input, self.output, *self.FLAGS)
        # One is told that its time is nearly over: it goes back into the queue by itself.
        self.wait_for_work(1)
        SLURM.command("scancel", "--signal=USR1", "--batch", f"{job}_1")
        wait_until(lambda: SLURM.state(job, 1) == ("PENDING", 1), "the task to be queued again")
        kept = os.path.getsize(self.part(1) + ".partial")
        SLURM.command("scontrol", "update", f"jobid={job}_1", "StartTime=now")  # not after Slurm's two minutes
        # Another is killed at once, as by a machine that has no memory left.
        self.wait_for_work(2)
        os.kill(pid_of_task(self.part(2)), signal.SIGKILL)
        SLURM.wait_for(job, [2], {"FAILED"})
        self.assertFalse(os.path.exists(self.part(2)))
        self.assertGreater(kept, 300)
        SLURM.wait_for(job, [1, 3], {"COMPLETED"})
        self.assertIn("stopped after", SLURM.log(1))
        # Only that one is submitted again.
        again = SLURM.submit("2", self.input, self.output, *self.FLAGS)
        SLURM.wait_for(again, [2], {"COMPLETED"})

        lines = lines_of(*map(self.part, (1, 2, 3)))
        self.assertEqual(len(lines), LINES)
        self.assertEqual([said(line) for line in lines], [said(line) for line in lines_of(whole)])
        self.assertEqual(sorted(os.listdir(self.output)), ["part-00001.jsonl", "part-00002.jsonl", "part-00003.jsonl", "shards"])
        # Once more, of what is done: nothing happens.
        nothing = SLURM.submit("1-3", self.input, self.output, *self.FLAGS)
        SLURM.wait_for(nothing, [1, 2, 3], {"COMPLETED"})
        self.assertIn("nothing to do", SLURM.log(3))

    def wait_for_work(self, task):
        partial = self.part(task) + ".partial"
        wait_until(lambda: os.path.exists(partial) and os.path.getsize(partial) > 1500, f"task {task} to have answers")

    def test_a_first_submission_of_some_shards_is_refused(self):
        job = SLURM.submit("2-3", self.input, self.output, *self.FLAGS)
        SLURM.wait_for(job, [2, 3], {"FAILED"})
        self.assertIn("--array=1-N", SLURM.log(2))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="carat-slurm-") as root:
        os.chmod(root, 0o755)
        SLURM = Slurm(root)
        SLURM.start()
        try:
            program = unittest.main(argv=[sys.argv[0], *sys.argv[3:]], exit=False)
        finally:
            SLURM.stop()
        sys.exit(not program.result.wasSuccessful())
