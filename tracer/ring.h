/* SPDX-License-Identifier: Apache-2.0
 *
 * The ring: how Octavo's tracer hands a program's reference stream to its consumer.
 *
 * One file, mapped shared by the consumer and every traced process:
 *
 *     page 0            struct octavo_session
 *     then SLOTS times  struct octavo_slot (one page), the draft and CHUNKS chunks, each of
 *                       CHUNK_BYTES
 *
 * A process image (a program, a forked child, the image after an exec) claims one free slot and
 * writes its stream there, chunk after chunk. A chunk is written as a draft, which stays in the
 * nearest caches of the writing processor, and is copied to its place once it is full: words that
 * were written there one by one would each wait for a line that the consumer has read.
 *
 * The stream is a sequence of 64-bit words:
 *
 *     bit 63 clear   an executed segment: the word is its number, and as many address words follow
 *                    as its definition has address groups
 *     bit 63 set     a record: bits 48-55 its kind, bits 0-31 how many payload words follow
 *
 * Liveness is shown by locks on the file, which the kernel releases when their holder dies and
 * which mean the same in every PID namespace: the consumer holds byte 0 while it reads, and the
 * process of slot N holds byte 1 + N while its image lasts. The open file that the consumer hands
 * to the program, which all traced processes share, holds byte 1 + SLOTS as long as one of them
 * lives.
 *
 * No record and no execution straddles a chunk. `write_address`, in the draft, always points past
 * the last whole item, so that what a killed process wrote is not lost. A consumer that reads the
 * draft of a running process may use what it has read only if no chunk has been published since:
 * the next draft is written over it. The numbers here are repeated in
 * crates/octavo-trace/src/ring/format.rs, and a version mismatch is refused.
 */
#ifndef OCTAVO_RING_H
#define OCTAVO_RING_H

#include <stdint.h>

#define OCTAVO_RING_MAGIC 0x00766174634f0a0dULL
#define OCTAVO_RING_VERSION 9u

#define OCTAVO_PAGE_BYTES 4096u
#define OCTAVO_SLOTS 960u
#define OCTAVO_CHUNKS 32u
#define OCTAVO_CHUNK_BYTES (128u * 1024u)
#define OCTAVO_SLOT_BYTES (OCTAVO_PAGE_BYTES + (1 + OCTAVO_CHUNKS) * OCTAVO_CHUNK_BYTES)
/* A superblock or a record is at most this long; a chunk is left when less than this is free. */
#define OCTAVO_SLACK_WORDS 2048u
#define OCTAVO_EXEC_NAME_BYTES 1024u
/* Threads of an image that a slot describes, and bytes of a name, which are those of the kernel. */
#define OCTAVO_THREADS 96u
#define OCTAVO_THREAD_NAME_BYTES 16u

enum octavo_slot_state { OCTAVO_SLOT_FREE = 0, OCTAVO_SLOT_CLAIMED = 1, OCTAVO_SLOT_OPEN = 2 };

struct octavo_session {
   uint64_t magic;
   uint32_t version;
   /* Written by the consumer: nothing is to be traced for now. */
   uint32_t paused;
   /* Counts up with every slot claimed: the order in which streams began. */
   uint32_t next_stream;
   /* Processes that found no free slot and run on untraced. */
   uint32_t untraced;
   uint32_t reserved[2];
   uint32_t slot_state[OCTAVO_SLOTS];
   /* Windows by instructions: the first number is traced, the second is not, and so on. 0 traced:
      there are no such windows. */
   uint64_t window_instructions, gap_instructions;
   /* Written by the consumer now and then: milliseconds since the first process began. */
   uint64_t elapsed_milliseconds;
};

struct octavo_thread {
   /* Of the thread's system calls, as `kernel_nanoseconds` of the slot. */
   uint64_t kernel_nanoseconds;
   /* The last name known; empty: the name of the program. */
   char name[OCTAVO_THREAD_NAME_BYTES];
};

struct octavo_slot {
   /* Written by the traced process. */
   uint64_t write_address;
   uint64_t limit_address;
   uint64_t draft_address;
   uint64_t chunks_published;
   uint32_t pid;
   uint32_t stream;
   /* The stream that forked this one, or OCTAVO_NO_PARENT for a fresh image. */
   uint32_t parent_stream;
   /* The signal that the process is about to die of, or 0. */
   uint32_t fatal_signal;
   uint32_t chunk_words[OCTAVO_CHUNKS];
   /* The mode of seccomp that the process has asked for (1 strict, 2 filter), or 0. The mode
      confines the tracer's own system calls as well. */
   uint32_t seccomp;
   /* Threads that have begun in this image; in a forked child also the one that forked. */
   uint32_t threads;
   /* Instructions executed by this image and the images that it comes from; counted where windows
      go by instructions. */
   uint64_t instructions;
   /* Processor time of the image's system calls in the kernel, where it is traced
      (kernel_time.c). */
   uint64_t kernel_nanoseconds;
   uint8_t pad[256 - 72 - 4 * OCTAVO_CHUNKS];
   /* Written by the consumer, on a line of its own. */
   uint64_t chunks_consumed;
   uint8_t more_pad[256 - 8];
   /* Written by the traced process before an exec: the argv[0] for the new image, where Valgrind
      puts the path. Empty: the path stays. */
   char exec_name[OCTAVO_EXEC_NAME_BYTES];
   /* Written by the traced process: the first threads, in the order in which they began. */
   struct octavo_thread thread[OCTAVO_THREADS];
};

_Static_assert(sizeof(struct octavo_session) <= OCTAVO_PAGE_BYTES, "the session has one page");
_Static_assert(sizeof(struct octavo_slot) <= OCTAVO_PAGE_BYTES, "a slot has one page");

#define OCTAVO_NO_PARENT 0xffffffffu
#define OCTAVO_UNKNOWN 0xffffffffffffffffULL

#define OCTAVO_RECORD (1ULL << 63)
#define OCTAVO_RECORD_KIND_SHIFT 48

/* Payloads, in words. A text is its length in bytes and then its bytes, padded to whole words. */
enum octavo_record {
   /* id | items << 32, instructions; then per item a word (bits 0-1 the kind: 0 fetch, 1 load, 2
      store, 3 modify; bit 2 guarded; bit 3 atomic; bit 4 joined; bits 16-31 bytes; bits 32-47
      offset), a fetch followed by its address; then per instruction three words: producers, reads,
      writes; and with OCTAVO_HAS_LATE in its reads two more: those of its producers and of its
      reads that are not needed for addresses. A data item that is not joined begins an address
      group, a joined one is in the group of the data item before; its address is `offset` bytes
      above the group's. */
   OCTAVO_DEFINE = 1,
   /* struct octavo_layout, then the text of the executable's path. */
   OCTAVO_START = 2,
   /* start, bytes, PROT bits, MAP flags (and OCTAVO_MAP_BY_MALLOC), source (enum octavo_source), file
      offset, text path. */
   OCTAVO_MAP = 3,
   /* start, bytes. */
   OCTAVO_UNMAP = 4,
   /* old start, old bytes, new start, new bytes. */
   OCTAVO_REMAP = 5,
   /* start, bytes, PROT bits. */
   OCTAVO_PROTECT = 6,
   /* start, bytes, MADV value. */
   OCTAVO_ADVISE = 7,
   /* thread. */
   OCTAVO_THREAD_START = 8,
   OCTAVO_THREAD_SWITCH = 9,
   OCTAVO_THREAD_END = 10,
   /* child pid. */
   OCTAVO_FORK = 11,
   /* text path; empty: the exec announced last has failed, and the image stays. */
   OCTAVO_EXEC = 12,
   /* signal. */
   OCTAVO_SIGNAL = 13,
   /* value. */
   OCTAVO_MARK = 14,
   /* exit code. */
   OCTAVO_EXIT = 15,
   /* 16 is in trace files only. */
   /* A window begins or ends: instructions of this image so far, or OCTAVO_UNKNOWN; milliseconds
      since the first process began, or OCTAVO_UNKNOWN. Everything before the first of these records
      is traced. An image that ends outside windows writes OCTAVO_WINDOW_END once more. */
   OCTAVO_WINDOW_BEGIN = 17,
   OCTAVO_WINDOW_END = 18,
   /* number, frames, the address of each frame, the text of each frame's function (empty: unknown).
      Number 0 has no frames, and comes before the START record where allocations are recorded. */
   OCTAVO_ALLOCATION_STACK = 19,
   /* start, bytes, stack (bits 0-31, and OCTAVO_INHERITED in a child for a block of its parent's); the
      block that the same call has freed, or 0. */
   OCTAVO_ALLOCATE = 20,
   /* start of a block. */
   OCTAVO_RELEASE = 21,
   /* 22 is written by the reader of a ring. */
};

/* In a definition. */
#define OCTAVO_HAS_LATE (1ULL << 23)
#define OCTAVO_INHERITED (1ULL << 32)
/* The C library has made the mapping for its malloc. */
#define OCTAVO_MAP_BY_MALLOC (1ULL << 32)

enum octavo_source {
   OCTAVO_ANONYMOUS = 0,
   OCTAVO_FILE = 1,
   OCTAVO_STACK = 2,
   OCTAVO_HEAP = 3,
   OCTAVO_SHARED = 4,
};

/* Where the parts of the address space were put, and where Linux would have put them: an address in
   [start, end) becomes address + delta (modulo 2^64). Ranges are sorted and disjoint; any other
   address stays. `delta` is in two's complement. */
#define OCTAVO_LAYOUT_RANGES 4
struct octavo_layout {
   struct {
      uint64_t start, end, delta;
   } range[OCTAVO_LAYOUT_RANGES];
   /* The range that the main stack may grow into, as traced. */
   uint64_t stack_start, stack_end;
};

#endif
