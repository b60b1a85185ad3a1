/* SPDX-License-Identifier: Apache-2.0 */
#include "privileges.h"

#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <stddef.h>

#include "syscalls.h"

enum { REFUSE = SECCOMP_RET_ERRNO | 1 /* EPERM */ };

#define ALLOW(name)                                      \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

int drop_capabilities(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct now[2] = {{0, 0, 0}, {0, 0, 0}};
    const struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
    kernel(SYS_capget, (unsigned long)&header, (unsigned long)now, 0, 0, 0);
    int is_root = kernel(SYS_getuid, 0, 0, 0, 0, 0) == 0 || kernel(SYS_geteuid, 0, 0, 0, 0, 0) == 0;
    if ((now[0].permitted | now[1].permitted) == 0)
        return is_root;
    kernel(SYS_capset, (unsigned long)&header, (unsigned long)none, 0, 0, 0);
    return 1;
}

int confine(void)
{
    static const struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, REFUSE),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(clock_nanosleep),
        ALLOW(clock_gettime),
        ALLOW(getrusage),
        ALLOW(lseek),
        ALLOW(read),
        ALLOW(pread64),
        ALLOW(ioctl),
        ALLOW(madvise),
        ALLOW(write),
        ALLOW(exit),
        BPF_STMT(BPF_RET | BPF_K, REFUSE),
    };
    const struct sock_fprog filter = {sizeof program / sizeof program[0],
                                      (struct sock_filter *)program};
    return kernel(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           kernel(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (unsigned long)&filter, 0, 0) == 0;
}
