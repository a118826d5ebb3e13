/* What only a compiled program can do: generations of less than a millisecond, and a set-user-ID program.

   refork TAG BEAT-FILE LIFE    every generation forks the next and ends; each is in a session of its own
   owner TAG LIFE               becomes its owner whole and sleeps; it takes no other orders from anybody */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LONGEST 120

static int seconds(const char *text) {
    int life = atoi(text);
    return life < 1 || life > LONGEST ? LONGEST : life;
}

static int owner(const char *life) {
    if (setresgid(getegid(), getegid(), getegid()) || setresuid(geteuid(), geteuid(), geteuid())) return 1;
    signal(SIGTERM, SIG_IGN);
    alarm(seconds(life));
    for (;;) pause();
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

static int refork(const char *file, const char *life) {
    double end = now() + seconds(life);
    int beat = open(file, O_WRONLY | O_CREAT | O_APPEND, 0600);
    signal(SIGTERM, SIG_IGN);
    while (beat >= 0 && now() < end) {
        if (write(beat, ".", 1) != 1) return 1;
        pid_t next = fork();
        if (next > 0) _exit(0);
        if (next < 0) usleep(1000);
        else setsid();
    }
    return 0;
}

int main(int argc, char **argv) {
    const char *name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    if (argc == 3 && !strncmp(name, "owner", 5)) return owner(argv[2]);
    return argc >= 4 ? refork(argv[2], argv[3]) : 2;
}
