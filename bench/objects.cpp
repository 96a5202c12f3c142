// objects.cpp - a C++ program of some 400,000 allocations, to measure what a preloaded memory tool
// costs: words in an index, as a program would build one, through operator new and the containers.
// `objects 4` does that in each of 4 threads.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

struct entry {
    std::string text;
    std::vector<std::uint32_t> lines;
};

static std::string word(std::uint32_t n) {
    return "a word that is too long for its own object " + std::to_string(n);
}

static void index_words(std::map<std::string, std::unique_ptr<entry>> &index, std::uint32_t words) {
    std::uint32_t random = 1;
    for (std::uint32_t line = 0; line < words; line++) {
        random = random * 1664525 + 1013904223;
        std::unique_ptr<entry> &found = index[word(random % (words / 4))];
        if (!found) found = std::make_unique<entry>(entry{word(line), {}});
        found->lines.push_back(line);
    }
}

static void work() {
    std::map<std::string, std::unique_ptr<entry>> index;
    index_words(index, 160000);
    std::printf("%zu words\n", index.size());
}

int main(int argc, char **argv) {
    std::vector<std::thread> threads;
    if (argc == 1) work();
    for (int n = argc > 1 ? std::atoi(argv[1]) : 0; n > 0; n--) threads.emplace_back(work);
    for (std::thread &thread : threads) thread.join();
}
