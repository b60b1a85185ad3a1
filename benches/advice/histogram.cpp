// Counts of random numbers in a table that all threads share: histogram ENTRIES UPDATES
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char **argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: histogram ENTRIES UPDATES\n");
        return 2;
    }
    const uint64_t entries = std::strtoull(argv[1], nullptr, 10);
    const int64_t updates = std::strtoll(argv[2], nullptr, 10);
    std::vector<uint32_t> table(entries, 1);
    std::puts("ready");
    std::fflush(stdout);
    std::getchar();
    const auto start = std::chrono::steady_clock::now();
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < updates; i++) {
        uint64_t x = static_cast<uint64_t>(i) + 0x9e3779b97f4a7c15u;
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
        uint32_t &count = table[(x ^ (x >> 31)) % entries];
#pragma omp atomic
        count++;
    }
    const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - start;
    uint64_t sum = 0;
    for (uint32_t count : table) sum += count;
    std::printf("%.2f ns per operation, sum %llu\n", taken.count() / static_cast<double>(updates),
                static_cast<unsigned long long>(sum - entries));
    return sum - entries == static_cast<uint64_t>(updates) ? 0 : 1;
}
