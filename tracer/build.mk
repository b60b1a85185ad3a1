# SPDX-License-Identifier: GPL-2.0-or-later
#
# Builds the Valgrind tool against the headers and static archives that Valgrind installs:
#
#   make -f tracer/build.mk [OUT=build/tracer] [WERROR=1]
#
# OUT becomes the private VALGRIND_LIB directory: the tool, and beside it links to two files of the
# installed Valgrind: the library that its core preloads into programs, and suppressions, which only
# tools with errors of their own read. This is a makefile of its own because it looks for Valgrind
# when it is read, and `make setup` may have installed Valgrind only a moment before.

OUT ?= build/tracer
SRC := $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))

# A packaged Valgrind has a valgrind.pc where pkg-config is installed; otherwise the directories
# beside the launcher, which covers /usr, /usr/local and any other prefix.
PREFIX := $(patsubst %/bin/,%,$(dir $(realpath $(shell command -v valgrind 2>/dev/null))))
PKG = $(shell pkg-config --variable=$(1) valgrind 2>/dev/null)
LIB_DIRS := $(addsuffix /valgrind,$(call PKG,libdir) \
	$(foreach p,$(PREFIX) /usr,$(p)/lib/x86_64-linux-gnu $(p)/lib64 $(p)/lib))
EXEC_DIRS := $(VALGRIND_LIB) $(addsuffix /libexec/valgrind,$(PREFIX) /usr) $(LIB_DIRS)
INCLUDE_DIRS := $(call PKG,includedir) $(addsuffix /include/valgrind,$(PREFIX) /usr)

find_dir = $(patsubst %/$(1),%,$(firstword $(wildcard $(addsuffix /$(1),$(2)))))
INCLUDE := $(call find_dir,pub_tool_basics.h,$(INCLUDE_DIRS))
ARCHIVES := $(call find_dir,libcoregrind-amd64-linux.a,$(LIB_DIRS))
EXECS := $(call find_dir,vgpreload_core-amd64-linux.so,$(EXEC_DIRS))

ifeq ($(and $(INCLUDE),$(ARCHIVES),$(EXECS)),)
$(error Valgrind's headers (pub_tool_basics.h), static archives (libcoregrind-amd64-linux.a) or \
  tool directory were not found: on Debian and Ubuntu the package valgrind has all of them)
endif

CFLAGS := -m64 -O2 -fno-strict-aliasing -fno-builtin -fomit-frame-pointer -fno-stack-protector \
	-fno-pie -std=gnu11 -Wall -Wextra -Wno-unused-parameter $(if $(WERROR),-Werror)
CPPFLAGS := -DVGA_amd64=1 -DVGO_linux=1 -DVGP_amd64_linux=1 -DVGPV_amd64_linux_vanilla=1 \
	-isystem $(INCLUDE)

# 0x58000000 is where Valgrind's own tools sit, clear of the program's text and heap. The wrapped
# functions are the core's decisions on where mappings go (placement.c), how a program is executed
# (execution.c), which calls wait (blocking.c) and the use of descriptors (descriptors.c), its entry
# into translations (windows.c) and into the kernel (kernel_time.c), where a superblock may go on
# (allocations.c), signals that stop a process (job_control.c), and VEX's checks (checks.c).
LDFLAGS := -static -no-pie -nodefaultlibs -nostartfiles -u _start -Wl,--build-id=none \
	-Wl,-Ttext-segment=0x58000000 \
	-Wl,--wrap=vgPlain_am_get_advisory \
	-Wl,--wrap=vgPlain_am_get_advisory_client_simple \
	-Wl,--wrap=vgPlain_am_create_reservation \
	-Wl,--wrap=vgPlain_am_extend_into_adjacent_reservation_client \
	-Wl,--wrap=vgSysWrap_generic_sys_execve_before \
	-Wl,--wrap=vgSysWrap_linux_sys_execveat_before \
	-Wl,--wrap=vgSysWrap_linux_sys_io_uring_enter_before \
	-Wl,--wrap=vgPlain_nuke_all_threads_except \
	-Wl,--wrap=vgPlain_env_setenv \
	-Wl,--wrap=vgPlain_check_executable \
	-Wl,--wrap=vgSysWrap_linux_sys_prlimit64_before \
	-Wl,--wrap=vgSysWrap_generic_sys_setrlimit_before \
	-Wl,--wrap=vgSysWrap_generic_sys_getrlimit_after \
	-Wl,--wrap=vgPlain_setrlimit \
	-Wl,--wrap=vgPlain_mkstemp \
	-Wl,--wrap=vgPlain_unlink \
	-Wl,--wrap=vgPlain_kill_self \
	-Wl,--wrap=vgPlain_sigaction \
	-Wl,--wrap=vgPlain_do_sys_sigaction \
	-Wl,--wrap=vgPlain_sigtimedwait_zero \
	-Wl,--wrap=vgPlain_disp_run_translations \
	-Wl,--wrap=vgPlain_gdbserver_report_syscall \
	-Wl,--wrap=vgPlain_acquire_BigLock \
	-Wl,--wrap=vgPlain_release_BigLock \
	-Wl,--wrap=vgPlain_redir_do_lookup \
	-Wl,--wrap=sanityCheckIRSB
LDLIBS := $(ARCHIVES)/libcoregrind-amd64-linux.a $(ARCHIVES)/libvex-amd64-linux.a -lgcc \
	$(ARCHIVES)/libgcc-sup-amd64-linux.a

OBJECTS := $(patsubst $(SRC)/%.c,$(OUT)/obj/%.o,$(wildcard $(SRC)/*.c))

$(OUT)/octavo-amd64-linux: $(OBJECTS) $(OUT)/obj/valgrind
	$(CC) -m64 $(LDFLAGS) -o $@ $(OBJECTS) $(LDLIBS)
	ln -sfn $(EXECS)/default.supp $(EXECS)/vgpreload_core-amd64-linux.so $(OUT)

$(OUT)/obj/%.o: $(SRC)/%.c $(SRC)/build.mk $(OUT)/obj/valgrind
	$(CC) $(CFLAGS) $(CPPFLAGS) -MMD -MP -c -o $@ $<

# The tool holds a copy of Valgrind's core, so another Valgrind means another tool. A package's
# files carry the time of their build, not of their installation, so their contents are compared.
$(OUT)/obj/valgrind: FORCE
	@mkdir -p $(@D)
	@cksum $(ARCHIVES)/libcoregrind-amd64-linux.a | cmp -s - $@ || \
		cksum $(ARCHIVES)/libcoregrind-amd64-linux.a >$@

.PHONY: FORCE
.DELETE_ON_ERROR:
-include $(wildcard $(OUT)/obj/*.d)
