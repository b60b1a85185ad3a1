// Instructions with known register dependences: some in a loop of 1000 turns, then some whose
// addresses lie at constant distances, and some whose addresses depend on less than their data.
// Static, without a C library.
//
//   dependences

static unsigned long cells[1024];

void _start(void) {
    __asm__ volatile("lea %0, %%rdi\n"
                     "lea 4096(%%rdi), %%rsi\n"
                     "mov $1000, %%ecx\n"
                     "xor %%ebx, %%ebx\n"
                     ".balign 64\n"
                     "1: mov (%%rdi), %%rax\n"  // reads rdi
                     "add %%rax, %%rbx\n"       // needs the load; reads and leaves rbx
                     "mov %%rbx, (%%rsi)\n"     // needs the sum; reads rsi
                     "lea 8(%%rdi), %%rdi\n"    // reads and leaves rdi
                     "sub $1, %%ecx\n"
                     "jne 1b\n"
                     "push %%rax\n"            // one group: 16 bytes of the stack. All registers that
                                               // are loaded differ: VEX drops loads of no use
                     "push %%rcx\n"
                     "mov 8(%%rsp), %%rdx\n"
                     "mov (%%rsi), %%r8\n"     // a group of its own
                     "mov 200(%%rsi), %%r9\n"  // too far from the one before; with the next one
                     "mov 300(%%rsi), %%r10\n"
                     "pop %%r12\n"             // a group again, as others lie between
                     "pop %%r13\n"
                     "test %%edi, %%edi\n"
                     "je 2f\n"                // never
                     "add (%%rdi), %%rbx\n"   // the sum is late
                     "mov %%rbx, (%%rsi)\n"   // late, too
                     "push %%rbx\n"           // late; the address reads rsp
                     "push %%rdi\n"           // rdi is late; so does its address, not the push's
                     "movdqu (%%rsi), %%xmm0\n"
                     "paddd %%xmm0, %%xmm0\n"  // the load made a vector
                     "movdqu %%xmm0, (%%rsi)\n"
                     "2: add $16, %%rsp\n"
                     "mov $60, %%eax\n"
                     "xor %%edi, %%edi\n"
                     "syscall\n" ::"m"(cells)
                     : "rax", "rbx", "rcx", "rdx", "rdi", "rsi", "r8", "r9", "r10", "r12", "r13",
                       "memory");
    __builtin_unreachable();
}
