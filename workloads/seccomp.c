/* SPDX-License-Identifier: Apache-2.0
 *
 * A program that confines its own system calls, and keeps to that.
 *
 *     seccomp strict    read, write, exit and sigreturn only
 *     seccomp filter    the same and exit_group, by a filter that kills with SIGSYS
 *
 * Natively it writes "before" and "after" and exits with status 0.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ALLOW(number)                                                                             \
   BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static int filter(void)
{
   struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      ALLOW(__NR_read), ALLOW(__NR_write), ALLOW(__NR_exit), ALLOW(__NR_exit_group),
      ALLOW(__NR_rt_sigreturn),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
   };
   struct sock_fprog program = {sizeof code / sizeof *code, code};
   return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
          || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static void say(const char *text)
{
   if (write(1, text, strlen(text)) < 0)
      syscall(SYS_exit, 1);
}

int main(int argc, char **argv)
{
   const char *mode = argc > 1 ? argv[1] : "";
   say("before\n");
   if (strcmp(mode, "strict") == 0 ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)
       : strcmp(mode, "filter") == 0 ? filter()
                                     : 1) {
      fprintf(stderr, "usage: seccomp strict|filter\n");
      return 2;
   }
   say("after\n");
   syscall(SYS_exit, 0);
}
