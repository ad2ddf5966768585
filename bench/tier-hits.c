/* What is here of an origin, looked at again and again: bench/tier.py compiles and runs it.
 *
 *   cc -O2 -o tier-hits bench/tier-hits.c && ./tier-hits DIRECTORY FILES SECONDS
 *
 * In DIRECTORY are files `0`, `1` … Prints, a line each: what is done, and how often a second. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void do_stat(const char *path)
{
    struct stat found;
    if (stat(path, &found) != 0)
        exit((perror(path), 1));
}

static void do_miss(const char *path)
{
    char other[4200];
    struct stat found;
    snprintf(other, sizeof other, "%s-none", path);
    if (stat(other, &found) == 0 || errno != ENOENT)
        exit((perror(other), 1));
}

static void do_read(const char *path)
{
    char buffer[4096];
    int file = open(path, O_RDONLY);
    if (file < 0 || read(file, buffer, sizeof buffer) <= 0 || close(file) != 0)
        exit((perror(path), 1));
}

int main(int count, char **words)
{
    const struct { const char *name; void (*act)(const char *); } all[] = {
        { "stat", do_stat }, { "stat-missing", do_miss }, { "open-read-close", do_read },
    };
    int files = count > 3 ? atoi(words[2]) : 0;
    if (files < 1)
        return 2;
    for (unsigned which = 0; which < sizeof all / sizeof *all; which++) {
        long done = 0;
        double began = now(), spent;
        char path[4096];
        do {
            for (int file = 0; file < files; file++, done++) {
                snprintf(path, sizeof path, "%s/%d", words[1], file);
                all[which].act(path);
            }
            spent = now() - began;
        } while (spent < atof(words[3]));
        printf("%s %.0f\n", all[which].name, done / spent);
    }
    return 0;
}
