// driver COUNT SEED CORPUS_FILE...: for compilers without libFuzzer, the corpus and COUNT damaged copies of it. An input
// that takes longer than two seconds of processor time ends the run.

#include <sys/resource.h>
#include <sys/time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

using Bytes = std::vector<uint8_t>;

static Bytes damaged(Bytes bytes, std::mt19937& random) {
  constexpr uint8_t kExtremes[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
  for (unsigned faults = 1 + random() % 8; faults > 0 && !bytes.empty(); --faults) {
    const size_t at = random() % bytes.size() % (random() % 2 ? 8 : bytes.size());
    switch (random() % 5) {
      case 0: bytes[at] = static_cast<uint8_t>(random()); break;
      case 1: bytes[at] ^= static_cast<uint8_t>(1u << random() % 8); break;
      case 2: bytes[at] = kExtremes[random() % std::size(kExtremes)]; break;
      case 3: bytes.resize(at); break;
      default: bytes.insert(bytes.end(), bytes.begin() + static_cast<ptrdiff_t>(at), bytes.end());
    }
    if (bytes.size() > 4096) bytes.resize(4096);
  }
  return bytes;
}

// Returns the seconds of processor time that the input took.
static double run(const Bytes& input) {
  const itimerval limit{{0, 0}, {2, 0}};
  setitimer(ITIMER_PROF, &limit, nullptr);  // the signal ends the process
  const std::clock_t started = std::clock();
  LLVMFuzzerTestOneInput(input.data(), input.size());
  return static_cast<double>(std::clock() - started) / CLOCKS_PER_SEC;
}

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: %s COUNT SEED CORPUS_FILE...\n", argv[0]);
    return 2;
  }
  std::vector<Bytes> corpus;
  for (int i = 3; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    run(corpus.back());
  }
  std::mt19937 random(static_cast<uint32_t>(std::strtoul(argv[2], nullptr, 10)));
  const long count = std::strtol(argv[1], nullptr, 10);
  double longest = 0;
  for (long i = 0; i < count; ++i) longest = std::max(longest, run(damaged(corpus[random() % corpus.size()], random)));
  rusage used;
  getrusage(RUSAGE_SELF, &used);
  std::printf("%ld inputs; at most %.3f s and %ld MB\n", count, longest, used.ru_maxrss / 1024);
  return 0;
}
