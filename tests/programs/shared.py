"""Shared anonymous memory of one process, three times what it may have, then shared with children. Argument: scale. Writes how much
memory it had at most before the first fork to standard error."""
import hashlib
import mmap
import os
import struct
import sys

PAGE = 4096
pages = 24 * 1024 * int(sys.argv[1])


def line(i, turn):
    return struct.pack("<QQ", i, turn) * 4 + hashlib.sha256(b"%d %d" % (i, turn)).digest() * 40


def digest(area, step=1):
    h = hashlib.sha256()
    for i in range(0, pages, step):
        h.update(area[i * PAGE : i * PAGE + 1344])
    return h.hexdigest()


def status(name):
    with open("/proc/self/status") as file:
        return next(int(row.split()[1]) for row in file if row.startswith(name + ":"))


area = mmap.mmap(-1, pages * PAGE)
for i in range(pages):
    area[i * PAGE : i * PAGE + 1344] = line(i, 1)
print("filled", digest(area))
for i in range(0, pages, 3):
    area[i * PAGE : i * PAGE + 1344] = line(i, 2)
print("changed", digest(area))
with open("part", "wb") as file:
    file.write(area[: 64 * PAGE])
with open("part", "rb") as file:
    file.readinto(memoryview(area)[PAGE * 100 : PAGE * 164])
print("copied", area[100 * PAGE : 164 * PAGE] == area[: 64 * PAGE])
print("most", status("VmHWM"), "KiB, shared", status("RssShmem"), "KiB", file=sys.stderr, flush=True)

small = mmap.mmap(-1, 64 * PAGE)
small[:8] = b"before\0\0"
for child in range(2):
    pid = os.fork()
    if pid == 0:
        print("child", child, digest(area, 7), small[:8], flush=True)
        small[:8] = b"child %d\0" % child
        area[: 1344] = line(0, 10 + child)
        os._exit(0)
    print("ended", os.waitpid(pid, 0)[1], small[:8], area[:1344] == line(0, 10 + child), flush=True)
print("after", digest(area, 5))
