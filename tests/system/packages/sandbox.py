"""Runs programs as a systemd unit would, on a machine where no systemd runs them: what the unit says of mounts, users,
rights, system calls and limits is done with the kernel's own means. Started inside of new namespaces of mounts, processes
and network (see `command`), as root.
"""

import ctypes
import errno
import fcntl
import os
import re
import resource
import shlex
import struct
import socket
import subprocess
import traceback

USER = 61200  # of the range that DynamicUser= takes from
# What is not done here, because it needs systemd itself, or would be the same in a namespace of its own.
NOT_DONE = {"SocketBindAllow", "SocketBindDeny", "RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID", "RemoveIPC",
            "KeyringMode", "PrivateUsers", "ProtectClock", "ProtectHostname", "ProtectControlGroups", "ProtectKernelLogs",
            "ProtectKernelModules", "ProtectKernelTunables", "LockPersonality", "SystemCallArchitectures", "Type",
            "Restart", "RestartSec", "KillMode", "DeviceAllow", "CacheDirectoryMode", "PrivateDevices"}

libc = ctypes.CDLL(None, use_errno=True)


def command(*arguments):
    """A command line that runs a script with these arguments in namespaces of its own."""
    return ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", *arguments]


def checked(result):
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def prctl(option, *arguments):
    checked(libc.prctl(option, *(ctypes.c_ulong(a) for a in (*arguments, 0, 0, 0, 0)[:4])))


def mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)


def bring_up_loopback():
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP


class Unit:
    """The section [Service] of a unit, and what its environment files say."""

    def __init__(self, root, name):
        self.root = root
        self.values = {}
        section = None
        file_name, instance = re.sub(r"@.+\.", "@.", name), re.search(r"@(.+)\.|$", name).group(1) or ""
        with open(f"{root}/lib/systemd/system/{file_name}") as file:
            for line in file:
                line = line.strip().replace("%i", instance)
                if line.startswith("["):
                    section = line
                elif section == "[Service]" and "=" in line and line[0] not in "#;":
                    key, value = line.split("=", 1)
                    self.values.setdefault(key, []).append(value)
        self.environment = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
        for assignment in shlex.split(" ".join(self.values.get("Environment", []))):
            name, value = assignment.split("=", 1)
            self.environment[name] = value
        for path in self.values.get("EnvironmentFile", []):
            if not os.path.exists(root + path.lstrip("-")):
                assert path.startswith("-")
                continue
            with open(root + path.lstrip("-")) as file:
                for line in file:
                    if re.match(r"\w+=", line):
                        name, value = line.strip().split("=", 1)
                        self.environment[name] = shlex.split(value)[0] if value else ""

    def one(self, key):
        return self.values[key][-1]

    def command_line(self):
        words = []
        for word in shlex.split(self.one("ExecStart")):
            if word.startswith("$"):
                words += shlex.split(self.environment.get(word[1:], ""))
            else:
                words.append(word)
        return words

    def seconds(self, key):
        return float(self.one(key))

    def not_reproduced(self):
        return sorted(set(self.values) & NOT_DONE)


class SystemCalls:
    """SystemCallFilter= and RestrictAddressFamilies=, by libseccomp."""

    def __init__(self, unit):
        allowed = set()
        for group in unit.values["SystemCallFilter"]:
            names = self.expand(group.lstrip("~"))
            allowed = allowed - names if group.startswith("~") else allowed | names
        self.library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
        self.library.seccomp_init.restype = ctypes.c_void_p
        self.filter = ctypes.c_void_p(self.library.seccomp_init(0x00050000 | errno.EPERM))
        families = [getattr(socket, family) for family in unit.one("RestrictAddressFamilies").split()]
        for name in sorted(allowed):
            number = self.library.seccomp_syscall_resolve_name(name.encode())
            if number < 0:
                continue  # of another architecture
            for condition in [[(0, 4, int(f), 0)] for f in families] if name == "socket" else [[]]:
                self.allow(number, condition)

    def allow(self, number, conditions):
        class Comparison(ctypes.Structure):
            _fields_ = [("argument", ctypes.c_uint), ("operator", ctypes.c_int), ("a", ctypes.c_uint64),
                        ("b", ctypes.c_uint64)]

        array = (Comparison * len(conditions))(*conditions)
        result = self.library.seccomp_rule_add_array(self.filter, ctypes.c_uint32(0x7fff0000), number, len(conditions),
                                                     array)
        if result != 0:
            raise OSError(-result, os.strerror(-result))

    def expand(self, group):
        if not group.startswith("@"):
            return set(group.split())
        listing = subprocess.run(["systemd-analyze", "syscall-filter", group], check=True, stdout=subprocess.PIPE,
                                 text=True).stdout
        names = set()
        for line in listing.splitlines()[1:]:
            line = line.strip()
            if line and not line.startswith("#"):
                names |= self.expand(line)
        return names

    def load(self):
        if self.library.seccomp_load(self.filter) != 0:
            raise OSError("the kernel refuses the filter of system calls")


class Sandbox:
    def __init__(self, unit):
        self.unit, self.root = unit, unit.root
        self.system_calls = SystemCalls(unit)
        bring_up_loopback()
        self.make_mounts()

    def make_mounts(self):
        root, unit = self.root, self.unit
        mount("--make-rprivate", "/")
        mount("--bind", root, root)
        mount("-t", "proc", "-o", "hidepid=" + unit.one("ProtectProc"), "proc", f"{root}/proc")
        mount("-t", "tmpfs", "-o", "mode=755", "devices", f"{root}/dev")
        assert unit.one("DevicePolicy") == "closed"
        for device in ("null", "zero", "full", "random", "urandom"):
            open(f"{root}/dev/{device}", "w").close()
            mount("--bind", f"/dev/{device}", f"{root}/dev/{device}")
        cache = f"{root}/var/cache/{unit.one('CacheDirectory')}"
        os.makedirs(cache, exist_ok=True)
        os.chown(cache, USER, USER)
        mount("--bind", cache, cache)
        assert unit.one("PrivateTmp") == "yes"
        for folder in ("tmp", "var/tmp"):
            mount("-t", "tmpfs", "-o", "mode=1777", "private", f"{root}/{folder}")
        assert unit.one("ProtectHome") == "yes"
        hidden = ["home", "root"] + [p.lstrip("-/") for p in unit.one("InaccessiblePaths").split()]
        for folder in hidden:
            if os.path.isdir(f"{root}/{folder}"):
                mount("-t", "tmpfs", "-o", "mode=000,ro", "hidden", f"{root}/{folder}")
        assert unit.one("ProtectSystem") == "strict"
        mount("-o", "remount,bind,ro", root)

    def open_files(self):
        """LimitNOFILE=, as far as this machine lets root go: in a container that may be less."""
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        return min(int(self.unit.one("LimitNOFILE")), hard)

    def start(self, words, **options):
        return subprocess.Popen(words, env=self.unit.environment, preexec_fn=self.enter, **options)

    def enter(self):
        """In the new process, before its program."""
        try:
            self.give_up_rights()
        except BaseException:
            traceback.print_exc()  # of which the parent would not say more than that there was one
            raise

    def give_up_rights(self):
        unit = self.unit
        most = self.open_files()
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        os.umask(int(unit.one("UMask"), 8))
        os.chroot(self.root)
        os.chdir(unit.one("WorkingDirectory"))
        assert unit.one("CapabilityBoundingSet") == "" and unit.one("DynamicUser") == "yes"
        for capability in range(64):
            try:
                prctl(24, capability)  # PR_CAPBSET_DROP
            except OSError:
                break
        os.setgroups([])
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)
        if unit.one("NoNewPrivileges") == "yes":
            prctl(38, 1)  # PR_SET_NO_NEW_PRIVS
        if unit.one("MemoryDenyWriteExecute") == "yes":
            try:
                prctl(65, 1)  # PR_SET_MDWE, Linux 6.3
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
        self.system_calls.load()
