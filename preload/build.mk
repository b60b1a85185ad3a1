# SPDX-License-Identifier: Apache-2.0
#
# Builds the library that `octavo apply` preloads:
#
#   make -f preload/build.mk [OUT=build/preload] [WERROR=1]
#
# The library is linked against no C library, so that it loads with glibc and musl of any version.
# Its thread has no thread-local storage, so no function may have a stack canary.

OUT ?= build/preload
SRC := $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))

CFLAGS := -m64 -std=gnu11 -O2 -fPIC -fvisibility=hidden -fno-stack-protector \
	-fno-asynchronous-unwind-tables -Wall -Wextra $(if $(WERROR),-Werror)
LDFLAGS := -shared -nostdlib -Wl,-z,now -Wl,-z,relro -Wl,-z,noexecstack

SOURCES := $(wildcard $(SRC)/*.c)

$(OUT)/liboctavo-apply.so: $(SOURCES) $(wildcard $(SRC)/*.h) $(SRC)/build.mk
	@mkdir -p $(OUT)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(SOURCES)

.DELETE_ON_ERROR:
