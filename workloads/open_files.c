/* SPDX-License-Identifier: Apache-2.0
 *
 * The limit of open files, used as servers use it: reads it, lowers soft and hard limit (memcached),
 * raises the soft one again (Java, nginx), opens files up to it, and executes a shell that prints
 * its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static void print_limit(const char *when)
{
   struct rlimit limit;
   getrlimit(RLIMIT_NOFILE, &limit);
   printf("%s: %lu %lu\n", when, (unsigned long)limit.rlim_cur, (unsigned long)limit.rlim_max);
}

static void set_limit(const char *when, rlim_t soft, rlim_t hard)
{
   struct rlimit limit = {soft, hard};
   int failed = setrlimit(RLIMIT_NOFILE, &limit);
   if (failed)
      printf("%s: error %d\n", when, errno);
   print_limit(when);
}

static void open_all(void)
{
   int last = -1, fd;
   while ((fd = open("/dev/null", O_RDONLY)) >= 0)
      last = fd;
   printf("the last is %d, then error %d\n", last, errno);
}

int main(void)
{
   struct rlimit limit;
   print_limit("at the start");
   set_limit("lowered", 30, 60);
   open_all();
   set_limit("soft raised", 60, 60);
   open_all();
   set_limit("soft above hard", 61, 60);
   /* The system calls that the library no longer makes. */
   syscall(SYS_getrlimit, RLIMIT_NOFILE, &limit);
   printf("getrlimit: %lu %lu\n", (unsigned long)limit.rlim_cur, (unsigned long)limit.rlim_max);
   limit.rlim_cur = 50;
   printf("setrlimit: %ld\n", syscall(SYS_setrlimit, RLIMIT_NOFILE, &limit));
   syscall(SYS_close_range, 3, ~0U, 0);
   fflush(stdout);
   execl("/bin/sh", "sh", "-c", "ulimit -Sn; ulimit -Hn", (char *)NULL);
   return 1;
}
