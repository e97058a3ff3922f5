# library.py SCALE: uses a library that Go has made, beside objects of Python's, in threads and in a child.
import ctypes
import os
import sys
import threading

scale = int(sys.argv[1])
own = [bytes([i % 256]) * 4096 for i in range(15000 * scale)]
go = ctypes.CDLL("./library.so")
go.Sum.restype = ctypes.c_long


def is_own_right():
    return all(block == bytes([i % 256]) * 4096 for i, block in enumerate(own))


go.Fill(60 * scale)
print("sum", go.Sum(), is_own_right())
print("executed", go.Executed(10), "signals", go.Signals(20), "threads", go.Threads(32), "panics", go.Panics(50))
sums = []
threads = [threading.Thread(target=lambda: sums.append(go.Sum())) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("sums", sums)
sys.stdout.flush()
child = os.fork()
if child == 0:
    os._exit(0 if is_own_right() else 1)
print("child", os.waitpid(child, 0)[1], "sum", go.Sum(), is_own_right())
