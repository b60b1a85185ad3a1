/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The traced side of the ring: claiming a slot, writing words, handing over whole chunks.
 */
#include "tracer.h"

/* Exported by the core's archive, not declared in the headers that tools get. */
extern SysRes VG_(am_shared_mmap_file_float_valgrind)(SizeT length, UInt prot, Int fd,
                                                      Off64T offset);

/* As fcntl(2) has them on Linux; Valgrind's headers do not. */
#define VKI_F_WRLCK 1
#define VKI_F_UNLCK 2

struct octavo_slot* ring_slot;

struct octavo_session* ring_session;
static Int session_fd = -1;
/* A silent process keeps writing, to private memory that is never read. */
static Bool silent;
static ULong* record_header;

Long raw_syscall(ULong number, ULong a, ULong b, ULong c, ULong d, ULong e, ULong f)
{
   Long result;
   register ULong r10 __asm__("r10") = d;
   register ULong r8 __asm__("r8") = e;
   register ULong r9 __asm__("r9") = f;
   __asm__ volatile("syscall"
                    : "=a"(result)
                    : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                    : "rcx", "r11", "memory");
   return result;
}

static void fail(const HChar* message)
{
   VG_(umsg)("octavo tracer: %s\n", message);
   VG_(exit)(125);
}

static ULong slot_offset(UInt slot)
{
   return OCTAVO_PAGE_BYTES + (ULong)slot * OCTAVO_SLOT_BYTES;
}

void ring_count_untraced(void)
{
   __atomic_add_fetch(&ring_session->untraced, 1, __ATOMIC_RELAXED);
}

/* Returns a free slot, now ours, or -1. */
static Int claim_slot(void)
{
   for (UInt i = 0; i < OCTAVO_SLOTS; i++) {
      UInt free_state = OCTAVO_SLOT_FREE;
      if (__atomic_compare_exchange_n(&ring_session->slot_state[i], &free_state, OCTAVO_SLOT_CLAIMED,
                                      False, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
         return (Int)i;
   }
   ring_count_untraced();
   return -1;
}

static ULong* chunk(ULong index)
{
   return (ULong*)(Addr)(ring_slot->draft_address
                         + (1 + index % OCTAVO_CHUNKS) * OCTAVO_CHUNK_BYTES);
}

static void begin_draft(void)
{
   ring_slot->write_address = ring_slot->draft_address;
   ring_slot->limit_address =
      ring_slot->draft_address + OCTAVO_CHUNK_BYTES - 8 * OCTAVO_SLACK_WORDS;
}

/* The seccomp mode of this process, which its children inherit. */
static UInt seccomp_mode;

UInt ring_set_seccomp(UInt mode)
{
   UInt before = seccomp_mode;
   seccomp_mode = ring_slot->seccomp = mode;
   return before;
}

static void reset_slot(UInt parent_stream)
{
   VG_(memset)(ring_slot, 0, sizeof *ring_slot);
   ring_slot->draft_address = (ULong)(Addr)ring_slot + OCTAVO_PAGE_BYTES;
   ring_slot->pid = (UInt)VG_(getpid)();
   ring_slot->parent_stream = parent_stream;
   ring_slot->seccomp = seccomp_mode;
   ring_slot->instructions = windows_instructions();
   begin_draft();
}

/* Locks the slot's byte of the session file for this image's life: the lock shows the consumer
   which process holds the slot. The lock ends when the process dies, and when the next image adopts
   the session's descriptor; a forked child does not inherit it. */
static void hold_slot(Int slot)
{
   struct vki_flock lock = {.l_type = VKI_F_WRLCK, .l_whence = VKI_SEEK_SET, .l_start = 1 + slot,
                            .l_len = 1};
   raw_syscall(__NR_fcntl, (ULong)session_fd, VKI_F_SETLK, (ULong)(Addr)&lock, 0, 0, 0);
}

static void announce_slot(Int slot)
{
   hold_slot(slot);
   ring_slot->stream = __atomic_fetch_add(&ring_session->next_stream, 1, __ATOMIC_RELAXED);
   __atomic_store_n(&ring_session->slot_state[slot], OCTAVO_SLOT_OPEN, __ATOMIC_RELEASE);
}

static HChar exec_name[OCTAVO_EXEC_NAME_BYTES];

/* Looks for the last image of this process among the open slots: its slot is freed only once the
   consumer has read it and seen this image's slot. Takes over the state that outlasts an image. */
static void find_last_image(void)
{
   UInt pid = (UInt)VG_(getpid)(), latest = 0;
   for (UInt i = 0; i < OCTAVO_SLOTS; i++) {
      if (__atomic_load_n(&ring_session->slot_state[i], __ATOMIC_ACQUIRE) != OCTAVO_SLOT_OPEN)
         continue;
      struct octavo_slot slot;
      Long got = raw_syscall(__NR_pread64, (ULong)session_fd, (ULong)(Addr)&slot, sizeof slot,
                             slot_offset(i), 0, 0);
      if (got == (Long)sizeof slot && slot.pid == pid && slot.stream >= latest) {
         latest = slot.stream;
         seccomp_mode = slot.seccomp;
         windows_continue(slot.instructions);
         VG_(memcpy)(exec_name, slot.exec_name, sizeof exec_name);
         exec_name[sizeof exec_name - 1] = 0;
      }
   }
}

const HChar* ring_exec_name(void)
{
   return exec_name;
}

void ring_open(Int fd)
{
   if (fd < 0)
      fail("give --octavo-session=FD; `octavo run` does");
   session_fd = descriptors_adopt(fd);

   SysRes mapped = VG_(am_shared_mmap_file_float_valgrind)(
      OCTAVO_PAGE_BYTES, VKI_PROT_READ | VKI_PROT_WRITE, session_fd, 0);
   if (sr_isError(mapped))
      fail("cannot map the session file");
   ring_session = (struct octavo_session*)(Addr)sr_Res(mapped);
   if (ring_session->magic != OCTAVO_RING_MAGIC || ring_session->version != OCTAVO_RING_VERSION)
      fail("the session file is of another version of octavo: rebuild both");

   find_last_image();
   Int slot = claim_slot();
   /* Without a slot the process still needs the memory that instrumented code writes to; the
      first slot's place is mapped and then covered by private memory. */
   mapped = VG_(am_shared_mmap_file_float_valgrind)(
      OCTAVO_SLOT_BYTES, VKI_PROT_READ | VKI_PROT_WRITE, session_fd,
      (Off64T)slot_offset(slot < 0 ? 0 : (UInt)slot));
   if (sr_isError(mapped))
      fail("cannot map a ring");
   ring_slot = (struct octavo_slot*)(Addr)sr_Res(mapped);
   if (slot < 0) {
      ring_reopen_in_child(False);
      return;
   }
   reset_slot(OCTAVO_NO_PARENT);
   announce_slot(slot);
}

void ring_reopen_in_child(Bool follow)
{
   UInt parent_stream = ring_slot->stream;
   Int slot = follow && !silent ? claim_slot() : -1;
   ULong flags = VKI_MAP_FIXED | (slot < 0 ? VKI_MAP_PRIVATE | VKI_MAP_ANONYMOUS : VKI_MAP_SHARED);
   Long mapped = raw_syscall(__NR_mmap, (ULong)(Addr)ring_slot, OCTAVO_SLOT_BYTES,
                             VKI_PROT_READ | VKI_PROT_WRITE, flags,
                             slot < 0 ? (ULong)-1L : (ULong)session_fd,
                             slot < 0 ? 0 : slot_offset((UInt)slot));
   if (mapped != (Long)(Addr)ring_slot)
      fail("cannot map a ring in a forked child");
   silent = slot < 0;
   reset_slot(parent_stream);
   if (!silent)
      announce_slot(slot);
}

/* Ends the process if its consumer has gone: it would otherwise wait for ever. */
static void check_consumer(void)
{
   struct vki_flock lock = {.l_type = VKI_F_WRLCK, .l_whence = VKI_SEEK_SET, .l_len = 1};
   Long asked =
      raw_syscall(__NR_fcntl, (ULong)session_fd, VKI_F_GETLK, (ULong)(Addr)&lock, 0, 0, 0);
   if (asked == 0 && lock.l_type == VKI_F_UNLCK) {
      raw_syscall(__NR_kill, (ULong)VG_(getpid)(), VKI_SIGKILL, 0, 0, 0, 0);
      /* The signal does not kill the first process of a PID namespace. */
      raw_syscall(__NR_exit_group, 128 + VKI_SIGKILL, 0, 0, 0, 0, 0);
   }
}

/* Copies words to where the consumer reads them. The cache lines are prefetched, many at once. */
static void copy_words(ULong* to, const ULong* from, UInt words)
{
   enum { LINE = 8, AHEAD = 16 * LINE };
   for (UInt i = 0; i < words; i += LINE) {
      __builtin_prefetch(to + i + AHEAD, 1);
      for (UInt word = 0; word < LINE; word++)
         to[i + word] = from[i + word];
   }
}

/* The number of chunks before chunk `index` that the consumer has not read yet. */
static ULong chunks_behind(ULong index)
{
   return index - __atomic_load_n(&ring_slot->chunks_consumed, __ATOMIC_ACQUIRE);
}

/* The ring is full: sleeps until half of it is read. With a consumer that cannot keep up, the
   tracer would otherwise wait for each single chunk, on a processor that the consumer's other
   threads need. */
static void wait_for_consumer(ULong index)
{
   struct vki_timespec nap = {0, 50 * 1000};
   ULong enough = OCTAVO_CHUNKS / 2;
   if (ring_slot->seccomp) {
      /* A system call may kill the process: it first spins until a single chunk is free. */
      enough = OCTAVO_CHUNKS - 1;
      for (UInt i = 0; i < 4096 && chunks_behind(index) > enough; i++)
         __builtin_ia32_pause();
   }
   for (UInt naps = 1; chunks_behind(index) > enough; naps++) {
      raw_syscall(__NR_nanosleep, (ULong)(Addr)&nap, 0, 0, 0, 0, 0);
      if (naps % 1024 == 0)
         check_consumer();
   }
}

void ring_next_chunk(void)
{
   if (silent) {
      begin_draft();
      return;
   }
   const ULong index = ring_slot->chunks_published;
   if (chunks_behind(index) >= OCTAVO_CHUNKS)
      wait_for_consumer(index);
   const UInt words = (UInt)((ring_slot->write_address - ring_slot->draft_address) / 8);
   copy_words(chunk(index), (const ULong*)(Addr)ring_slot->draft_address, words);
   ring_slot->chunk_words[index % OCTAVO_CHUNKS] = words;
   __atomic_store_n(&ring_slot->chunks_published, index + 1, __ATOMIC_RELEASE);
   begin_draft();
}

void ring_begin(enum octavo_record kind)
{
   if (ring_slot->write_address > ring_slot->limit_address)
      ring_next_chunk();
   record_header = (ULong*)(Addr)ring_slot->write_address;
   *record_header = OCTAVO_RECORD | ((ULong)kind << OCTAVO_RECORD_KIND_SHIFT);
}

void ring_word(ULong word)
{
   (*record_header)++;
   record_header[(UInt)*record_header] = word;
   tl_assert((UInt)*record_header < OCTAVO_SLACK_WORDS);
}

void ring_text(const HChar* text)
{
   SizeT bytes = VG_(strlen)(text);
   if (bytes > TRACER_PATH_BYTES)
      bytes = TRACER_PATH_BYTES;
   ring_word(bytes);
   for (SizeT done = 0; done < bytes; done += 8) {
      ULong word = 0;
      VG_(memcpy)(&word, text + done, bytes - done < 8 ? bytes - done : 8);
      ring_word(word);
   }
}

void ring_end(void)
{
   /* The payload is stored before the address: the consumer of an idle program reads up to the
      address. */
   __atomic_store_n(&ring_slot->write_address,
                    ring_slot->write_address + 8 * (1 + (ULong)(UInt)*record_header),
                    __ATOMIC_RELEASE);
}

void ring_record(enum octavo_record kind, UInt words, const ULong* payload)
{
   ring_begin(kind);
   for (UInt i = 0; i < words; i++)
      ring_word(payload[i]);
   ring_end();
}
