// Four instructions whose register dependences can be read off the page, in a loop of 1000 turns:
// static, without a C library.
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
                     "mov $60, %%eax\n"
                     "xor %%edi, %%edi\n"
                     "syscall\n" ::"m"(cells)
                     : "rax", "rbx", "rcx", "rdi", "rsi", "memory");
    __builtin_unreachable();
}
