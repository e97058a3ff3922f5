"""multiprocessing with fork: children read what the parent built, and build their own. Argument: scale."""
import hashlib
import multiprocessing
import sys

scale = int(sys.argv[1])
shared = ["item %d %s" % (i, "x" * (i % 50)) for i in range(400_000 * scale)]


def work(part):
    own = {s: len(s) for s in shared[part::8]}
    digest = hashlib.sha256()
    for s in shared[part::8]:
        digest.update(s.encode())
        digest.update(str(own[s]).encode())
    return part, len(own), digest.hexdigest()


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    with multiprocessing.Pool(3) as pool:
        for result in pool.imap(work, range(8)):
            print(*result)
    queue = multiprocessing.Queue()

    def child(n):
        queue.put((n, hashlib.sha256("".join(shared[n::3]).encode()).hexdigest()))

    children = [multiprocessing.Process(target=child, args=(n,)) for n in range(3)]
    for c in children:
        c.start()
    print(*sorted(queue.get() for _ in children))
    for c in children:
        c.join()
        print(c.exitcode)
    print(hashlib.sha256("".join(shared).encode()).hexdigest())
