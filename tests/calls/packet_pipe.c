/* Pipes of packets that do not wait: each read into several buffers gives one packet, however much room there is; packets are never joined, and
 * what of one finds no room is lost. Once with room for more than is made resident at once, once in a process in which many threads wait. */
#include "waiters.h"

enum { MOST = 12, BACK = 16 << 10 };
static int ends[2];
static char *memory;
static size_t room_bytes;

/* So many buffers of the given lengths, the last as long as the room; each followed by bytes that nobody may touch. */
static int list(struct iovec *parts, const int *lengths) {
    int count = 0;
    char *at = memory;
    for (; lengths[count] >= 0; at += lengths[count++] + 64) parts[count] = (struct iovec){at, lengths[count]};
    parts[count++] = (struct iovec){at, room_bytes};
    /* What comes behind a packet is looked at, too. */
    memset(memory, 0xee, at - memory + BACK);
    return count;
}
static ssize_t reads(int way, struct iovec *parts, int count) {
    evict_some(memory, room_bytes + BACK);
    switch (way) {
    case 0: return readv(ends[0], parts, count);
    case 1: return syscall(SYS_readv, ends[0], parts, count);
    default: return preadv2(ends[0], parts, count, -1, 0);
    }
}
/* The next packet has so many bytes, of which there is nothing else anywhere. */
static void one_packet(int way, const int *lengths, int bytes, unsigned seed) {
    struct iovec parts[MOST];
    int count = list(parts, lengths), at = 0;
    EQ(reads(way, parts, count), bytes);
    for (int i = 0; i < count; i++) {
        int len = parts[i].iov_len, part = bytes - at < len ? bytes - at : len;
        check_from(parts[i].iov_base, part, seed, at), at += part;
        int behind = i + 1 < count ? (char *)parts[i + 1].iov_base - (char *)parts[i].iov_base - part : BACK / 2;
        for (int k = 0; k < behind; k++) EQ(((unsigned char *)parts[i].iov_base)[part + k], 0xee);
    }
}
static void empty(int way, const int *lengths) {
    struct iovec parts[MOST];
    expect_errno(reads(way, parts, list(parts, lengths)), EAGAIN);
}

static void packets(int way, const int *lengths) {
    /* As long as the first buffers together, a byte more and less, and any. */
    static const int bytes[] = {1, 999, 1000, 1001, 2000, 2001, 3000, 4095, 4096, 17, 1000, 1000, 4096};
    enum { N = sizeof bytes / sizeof *bytes };
    static char packet[10000];
    struct iovec parts[MOST];
    OK(pipe2(ends, O_DIRECT | O_NONBLOCK));
    for (int n = 0; n < N; n++) fill(packet, bytes[n], n), EQ(write(ends[1], packet, bytes[n]), bytes[n]);
    for (int n = 0; n < N; n++) one_packet(way, lengths, bytes[n], n);
    empty(way, lengths);
    /* One alone, with nothing behind it. */
    fill(packet, 3000, 1), EQ(write(ends[1], packet, 3000), 3000);
    one_packet(way, lengths, 3000, 1), empty(way, lengths);
    /* What is longer than a page makes several. */
    fill(packet, 10000, 2), EQ(write(ends[1], packet, 10000), 10000);
    for (int at = 0; at < 10000; at += PAGE) {
        char *whole = heap(PAGE);
        int len = 10000 - at < (int)PAGE ? 10000 - at : (int)PAGE, count = list(parts, lengths), done = 0;
        EQ(reads(way, parts, count), len);
        for (int i = 0; done < len; i++) {
            int part = (int)parts[i].iov_len < len - done ? (int)parts[i].iov_len : len - done;
            memcpy(whole + done, parts[i].iov_base, part), done += part;
        }
        check_from(whole, len, 2, at), free(whole);
    }
    empty(way, lengths);
    /* Of what is longer than the buffers the rest is lost, and nothing of what follows comes in its place. */
    for (int n = 0; n < 2; n++) fill(packet, 4000, n), EQ(write(ends[1], packet, 4000), 4000);
    list(parts, (int[]){1000, 500, -1}), EQ(reads(way, parts, 2), 1500);
    check(parts[0].iov_base, 1000, 0), check_from(parts[1].iov_base, 500, 0, 1000);
    one_packet(way, lengths, 4000, 1), empty(way, lengths);
    /* The last is there after the end of whoever wrote it. */
    fill(packet, 1000, 3), EQ(write(ends[1], packet, 1000), 1000), OK(close(ends[1]));
    one_packet(way, lengths, 1000, 3);
    EQ(reads(way, parts, list(parts, lengths)), 0), OK(close(ends[0]));
}
static void all(void) {
    for (int way = 0; way < 3; way++) {
        packets(way, (int[]){1000, 1000, 1000, 1000, -1});
        packets(way, (int[]){PAGE, -1});
        packets(way, (int[]){0, 1, 0, 998, 1, 1, 999, 0, 2000, -1});
    }
}

int main(void) {
    alarm(60), pressure(40);
    memory = fresh((4 * MIB) / PAGE);
    room_bytes = 3 * MIB, all();
    begin_waiting();
    room_bytes = 40 << 10, all();
    end_waiting();
    puts("ok");
    return 0;
}
