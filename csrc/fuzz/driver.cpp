// driver COUNT SEED CORPUS_FILE...: for compilers without libFuzzer, the corpus and COUNT damaged copies of it.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
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

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: %s COUNT SEED CORPUS_FILE...\n", argv[0]);
    return 2;
  }
  std::vector<Bytes> corpus;
  for (int i = 3; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    LLVMFuzzerTestOneInput(corpus.back().data(), corpus.back().size());
  }
  std::mt19937 random(static_cast<uint32_t>(std::strtoul(argv[2], nullptr, 10)));
  const long count = std::strtol(argv[1], nullptr, 10);
  for (long i = 0; i < count; ++i) {
    const Bytes input = damaged(corpus[random() % corpus.size()], random);
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  std::printf("%ld inputs\n", count);
  return 0;
}
