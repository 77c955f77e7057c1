/* replay.c - runs a fuzz target over a folder of inputs, without libFuzzer.
 *
 * So that any compiler, with or without sanitizers, replays what fuzzing once found.  One case for
 * each file, in TAP, as the other tests print it.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

/* The input in memory of its very length, so that a sanitizer sees a read beyond it. */
static int replay(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0)
        goto fail;
    long len = ftell(file);
    if (len < 0 || fseek(file, 0, SEEK_SET) != 0)
        goto fail;
    uint8_t *bytes = malloc((size_t)len + (len == 0));
    if (!bytes || fread(bytes, 1, (size_t)len, file) != (size_t)len) {
        free(bytes);
        goto fail;
    }
    fclose(file);
    LLVMFuzzerTestOneInput(bytes, (size_t)len);
    free(bytes);
    return 0;
fail:
    perror(path);
    if (file)
        fclose(file);
    return 1;
}

static int is_shown(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    struct dirent **entries;
    int n = scandir(argv[1], &entries, is_shown, alphasort);
    if (n <= 0) {
        fprintf(stderr, "%s: no inputs\n", argv[1]);
        return 1;
    }
    int status = 0;
    printf("1..%d\n", n);
    for (int i = 0; i < n; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", argv[1], entries[i]->d_name);
        int failed = replay(path);
        status |= failed;
        printf("%s %d - %s\n", failed ? "not ok" : "ok", i + 1, entries[i]->d_name);
        fflush(stdout);
        free(entries[i]);
    }
    free(entries);
    return status;
}
