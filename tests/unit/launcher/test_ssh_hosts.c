/* The oracle is ssh-keygen: it hashes names (-H) and finds them (-F). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/fd.h"
#include "base/hash.h"
#include "launcher/ssh_hosts.h"
#include "ssh_oracle.h"

static enum ft_ssh_known ask(struct ft_ssh_hosts *h, const char *name, int port, const char *type, const char *key, int *line)
{
    struct ft_source at;
    const enum ft_ssh_known k = ft_ssh_hosts_judge(h, &(struct ft_ssh_who){.name = name, .port = port}, type, key, &at);
    if (line) *line = at.line;
    return k;
}

static void rules(void **state)
{
    (void)state;
    static const char text[] = "# comment\n"
                               "node01,10.0.0.1 ssh-ed25519 AAAA1 a comment\n"
                               "[node01]:2222 ssh-ed25519 AAAA2\n"
                               "*.lab,!bad.lab ssh-rsa AAAA3\n"
                               "node01 ssh-rsa AAAA4\r\n"
                               "@revoked * ssh-ed25519 AAAA5\n"
                               "@cert-authority *.ca ssh-ed25519 AAAA6\n"
                               "@other x ssh-ed25519 AAAA7\n"
                               "broken line\n"
                               "|1|short|x ssh-ed25519 AAAA8\n"
                               "plain ssh-ed25519 AAAA9\n"
                               "last ssh-ed25519 AAAA10";
    struct ft_ssh_hosts *h = ft_ssh_hosts_create();
    ft_ssh_hosts_read_text(h, "kh", text, sizeof text - 1);
    int line;
    assert_int_equal(ask(h, "node01", 22, "ssh-ed25519", "AAAA1", NULL), FT_KNOWN_YES);
    assert_int_equal(ask(h, "NODE01", 0, "ssh-ed25519", "AAAA1", NULL), FT_KNOWN_YES);
    assert_int_equal(ask(h, "10.0.0.1", 22, "ssh-ed25519", "AAAA1", NULL), FT_KNOWN_YES);
    assert_int_equal(ask(h, "node01", 22, "ssh-ed25519", "AAAAx", &line), FT_KNOWN_CHANGED);
    assert_int_equal(line, 2);
    assert_int_equal(ask(h, "node01", 22, "ssh-rsa", "AAAA4", NULL), FT_KNOWN_YES);
    assert_int_equal(ask(h, "node01", 22, "ecdsa-sha2-nistp256", "AAAAx", &line), FT_KNOWN_CHANGED);
    assert_int_equal(line, 2);
    assert_int_equal(ask(h, "node01", 2222, "ssh-ed25519", "AAAA2", NULL), FT_KNOWN_YES);
    assert_int_equal(ask(h, "node01", 2222, "ssh-ed25519", "AAAA1", NULL), FT_KNOWN_YES); /* as ssh: found without the port */
    assert_int_equal(ask(h, "node01", 2222, "ssh-ed25519", "AAAAx", &line), FT_KNOWN_CHANGED);
    assert_int_equal(line, 3);
    assert_int_equal(ask(h, "plain", 2222, "ssh-ed25519", "AAAAx", NULL), FT_KNOWN_NO); /* another port, another sshd */
    assert_int_equal(ask(h, "a.lab", 22, "ssh-rsa", "AAAA3", NULL), FT_KNOWN_YES);
    assert_int_equal(ask(h, "bad.lab", 22, "ssh-rsa", "AAAA3", NULL), FT_KNOWN_NO);
    assert_int_equal(ask(h, "node01", 22, "ssh-ed25519", "AAAA5", &line), FT_KNOWN_REVOKED);
    assert_int_equal(line, 6);
    assert_int_equal(ask(h, "new", 22, "ssh-ed25519", "AAAA5", NULL), FT_KNOWN_REVOKED);
    assert_int_equal(ask(h, "x.ca", 22, "ssh-ed25519", "AAAAx", &line), FT_KNOWN_BY_CA);
    assert_int_equal(line, 7);
    assert_int_equal(ask(h, "x", 22, "ssh-ed25519", "AAAA7", NULL), FT_KNOWN_NO);
    assert_int_equal(ask(h, "last", 22, "ssh-ed25519", "AAAA10", NULL), FT_KNOWN_YES);
    struct ft_buf types = {0};
    ft_ssh_hosts_types(h, &(struct ft_ssh_who){.name = "node01", .port = 22}, &types);
    assert_string_equal(types.data, "ssh-ed25519,ssh-rsa");
    ft_ssh_hosts_types(h, &(struct ft_ssh_who){.name = "nobody", .port = 22}, &types);
    assert_string_equal(ft_buf_str(&types), "");
    ft_buf_fini(&types);
    ft_ssh_hosts_destroy(h);
}

static void hmac_vectors(void **state)
{
    (void)state;
    /* RFC 2202 */
    static const struct {
        const char *key;
        int key_n;
        const char *data, *want;
    } v[] = {
        {"\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b", 20, "Hi There",
         "b617318655057264e28bc0b6fb378c8ef146be00"},
        {"Jefe", 4, "what do ya want for nothing?", "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"},
    };
    for (size_t i = 0; i < 2; i++) {
        unsigned char mac[20];
        char hex[41];
        ft_ssh_hmac_sha1(v[i].key, (size_t)v[i].key_n, v[i].data, strlen(v[i].data), mac);
        ft_hex(mac, 20, hex);
        assert_string_equal(hex, v[i].want);
    }
    char key[80];
    memset(key, 0xaa, sizeof key);
    unsigned char mac[20];
    char hex[41];
    const char data[] = "Test Using Larger Than Block-Size Key and Larger Than One Block-Size Data";
    ft_ssh_hmac_sha1(key, 80, data, sizeof data - 1, mac);
    ft_hex(mac, 20, hex);
    assert_string_equal(hex, "e8e99d0f45237d786d6bbaa7965c7808bbff1a91");
    unsigned char out[8];
    assert_int_equal(ft_ssh_unbase64("Zm9vYg==", 8, out, 8), 4);
    assert_memory_equal(out, "foob", 4);
    assert_int_equal(ft_ssh_unbase64("Zm9v", 4, out, 2), -1);
    assert_int_equal(ft_ssh_unbase64("Zm=v", 4, out, 8), -1);
    assert_int_equal(ft_ssh_unbase64("Zm9", 3, out, 8), -1);
}

static void hashed_by_ssh_keygen(void **state)
{
    (void)state;
    char *dir = make_folder();
    struct ft_buf path = {0}, out = {0};
    ft_buf_addf(&path, "%s/kh", dir);
    struct ft_buf text = {0};
    for (int i = 0; i < 40; i++)
        ft_buf_addf(
            &text,
            "host%02d ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKey%02d\n[host%02d]:2222 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPrt%02d\n",
            i, i, i, i);
    write_text(dir, "kh", text.data);
    char *argv[] = {(char[]){"ssh-keygen"}, (char[]){"-q"}, (char[]){"-H"}, (char[]){"-f"}, path.data, NULL};
    const int rc = run_program(argv, &out, 1);
    if (rc == 127) {
        printf("skipped: there is no ssh-keygen\n");
        remove_folder(dir);
        skip();
    }
    assert_int_equal(rc, 0);
    struct ft_buf now = {0};
    struct ft_err err = {0};
    assert_int_equal(ft_read_file(path.data, 1 << 20, &now, &err), FT_OK);
    assert_null(strstr(now.data, "host01")); /* it is hashed */
    struct ft_ssh_hosts *h = ft_ssh_hosts_create();
    assert_int_equal(ft_ssh_hosts_read(h, path.data, &err), FT_OK);
    assert_int_equal(ft_ssh_hosts_read(h, "/nowhere/at/all", &err), FT_OK);
    for (int i = 0; i < 40; i++) {
        char name[16], key[64];
        int line;
        snprintf(name, sizeof name, "host%02d", i);
        snprintf(key, sizeof key, "AAAAC3NzaC1lZDI1NTE5AAAAIKey%02d", i);
        assert_int_equal(ask(h, name, 22, "ssh-ed25519", key, NULL), FT_KNOWN_YES);
        snprintf(key, sizeof key, "AAAAC3NzaC1lZDI1NTE5AAAAIPrt%02d", i);
        assert_int_equal(ask(h, name, 2222, "ssh-ed25519", key, NULL), FT_KNOWN_YES);
        assert_int_equal(ask(h, name, 22, "ssh-ed25519", "AAAAother", &line), FT_KNOWN_CHANGED);
        assert_int_equal(line, 2 * i + 1);
    }
    assert_int_equal(ask(h, "host40", 22, "ssh-ed25519", "x", NULL), FT_KNOWN_NO);
    ft_ssh_hosts_destroy(h);
    ft_buf_fini(&now);
    ft_buf_fini(&path);
    ft_buf_fini(&text);
    ft_buf_fini(&out);
    remove_folder(dir);
}

static void appends_once(void **state)
{
    (void)state;
    char *dir = make_folder();
    struct ft_buf path = {0}, now = {0}, out = {0};
    struct ft_err err = {0};
    ft_buf_addf(&path, "%s/new/kh", dir);
    struct ft_ssh_hosts *h = ft_ssh_hosts_create();
    const struct ft_ssh_who a = {.name = "a", .port = 22}, b = {.name = "B", .port = 2222};
    const char key[] = "AAAAC3NzaC1lZDI1NTE5AAAAIMgoXXxXyTrXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX";
    assert_int_equal(ft_ssh_hosts_append(h, path.data, &a, "ssh-ed25519", key, &err), FT_OK);
    assert_int_equal(ft_ssh_hosts_append(h, path.data, &a, "ssh-ed25519", key, &err), FT_OK);
    assert_int_equal(ft_ssh_hosts_append(h, path.data, &b, "ssh-ed25519", key, &err), FT_OK);
    assert_int_equal(ft_read_file(path.data, 1 << 20, &now, &err), FT_OK);
    ft_buf_addf(&out, "a ssh-ed25519 %s\n[b]:2222 ssh-ed25519 %s\n", key, key);
    assert_string_equal(now.data, out.data);
    assert_int_equal(ask(h, "b", 2222, "ssh-ed25519", key, NULL), FT_KNOWN_YES);
    struct stat st;
    assert_int_equal(stat(path.data, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    /* a last line without its end */
    write_text(dir, "cut", "x ssh-ed25519 AAAA");
    ft_buf_clear(&path);
    ft_buf_addf(&path, "%s/cut", dir);
    assert_int_equal(ft_ssh_hosts_append(h, path.data, &a, "ssh-ed25519", "AAAAz", &err), FT_OK);
    assert_int_equal(ft_read_file(path.data, 1 << 20, &now, &err), FT_OK);
    assert_string_equal(now.data, "x ssh-ed25519 AAAA\na ssh-ed25519 AAAAz\n");
    assert_int_equal(ft_ssh_hosts_append(h, "/proc/nowhere", &a, "t", "k", &err), FT_IO);
    ft_ssh_hosts_destroy(h);
    ft_buf_fini(&path);
    ft_buf_fini(&now);
    ft_buf_fini(&out);
    remove_folder(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules),
        cmocka_unit_test(hmac_vectors),
        cmocka_unit_test(hashed_by_ssh_keygen),
        cmocka_unit_test(appends_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
