/* add_key, request_key and keyctl, with the vector behind KEYCTL_INSTANTIATE_IOV. */
#include "alike.h"
#include <linux/keyctl.h>

static long add(const char *name, const void *payload, size_t n) {
    return syscall(SYS_add_key, text("user"), text(name), in(payload, n), n, KEY_SPEC_PROCESS_KEYRING);
}
int main(void) {
    tmpdir();
    /* Across a border between pages, but small: a user may have 20,000 bytes of keys, those of ended processes for a while among them. */
    char payload[PAGE + 64], *out;
    fill(payload, sizeof payload, 3);
    for (int tries = 0; tries < 200 && add("outswap-test", payload, sizeof payload) < 0 && errno == EDQUOT; tries++)
        usleep(50000);
    /* The same key twice: its number is the same. */
    long key = ALIKE(add("outswap-test", payload, sizeof payload));
    BAD(syscall(SYS_add_key, str("user"), str("outswap-test"), bad_in()[2], 5, KEY_SPEC_PROCESS_KEYRING));
    BAD(syscall(SYS_add_key, bad_in()[2], str("outswap-test"), NULL, 0, KEY_SPEC_PROCESS_KEYRING));
    ALIKE(syscall(SYS_request_key, text("user"), text("outswap-test"), NULL, KEY_SPEC_PROCESS_KEYRING));
    ALIKE(syscall(SYS_request_key, text("user"), text("outswap-absent"), NULL, KEY_SPEC_PROCESS_KEYRING));
    ALIKE(syscall(SYS_keyctl, KEYCTL_SEARCH, KEY_SPEC_PROCESS_KEYRING, text("user"), text("outswap-test"), 0));
    if (key > 0) {
        out = place(sizeof payload, 8);
        memset(out, 9, sizeof payload), evict(out, sizeof payload);
        EQ(syscall(SYS_keyctl, KEYCTL_READ, key, out, sizeof payload), sizeof payload);
        check(out, sizeof payload, 3);
        BAD(syscall(SYS_keyctl, KEYCTL_READ, key, bad_out()[2], sizeof payload));
        ALIKE(syscall(SYS_keyctl, KEYCTL_DESCRIBE, key, zeros(200), 200));
        ALIKE(syscall(SYS_keyctl, KEYCTL_UPDATE, key, in(payload, PAGE), PAGE));
        ALIKE(syscall(SYS_keyctl, KEYCTL_GET_SECURITY, key, zeros(200), 200));
        struct iovec parts[2];
        ALIKE(({
            for (int i = 0; i < 2; i++) parts[i] = (struct iovec){in(payload, 100), 100};
            syscall(SYS_keyctl, KEYCTL_INSTANTIATE_IOV, key, in(parts, sizeof parts), 2, 0);
        }));
        OK(syscall(SYS_keyctl, KEYCTL_UNLINK, key, KEY_SPEC_PROCESS_KEYRING, 0, 0));
    }
    ALIKE_IF((a_ < 0) == (b_ < 0), syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, text("outswap-session"), 0, 0, 0));
    ALIKE(syscall(SYS_keyctl, KEYCTL_CAPABILITIES, zeros(8), 8, 0, 0));
    /* Refused, after what it points to was read. */
    ALIKE(syscall(SYS_keyctl, KEYCTL_DH_COMPUTE, THE(struct keyctl_dh_params, {1}, 1, 1), zeros(64), 64,
        THE(struct keyctl_kdf_params, .hashname = text("sha256"), .otherinfo = text("other"), .otherinfolen = 6)));
    puts("ok");
    return 0;
}
