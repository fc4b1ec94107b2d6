// outpace_tests [name-prefix...]: runs the tests whose name starts with one of the prefixes, or all of them.

#include <algorithm>
#include <exception>
#include <string>
#include <vector>

#include "check.h"

namespace outpace::test {

struct Test {
  std::string name;
  void (*body)();
};

static std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

static int failures_of_this_test = 0;

void add_test(const char* name, void (*body)()) { tests().push_back({name, body}); }

void fail(const char* file, int line, const std::string& what) {
  constexpr int kShown = 10;  // one wrong kernel fails thousands of elements
  if (++failures_of_this_test <= kShown) std::cerr << file << ":" << line << ": " << what << "\n";
}

static bool run(const Test& test) {
  failures_of_this_test = 0;
  try {
    test.body();
  } catch (const std::exception& error) {
    fail(test.name.c_str(), 0, std::string("threw ") + error.what());
  }
  if (failures_of_this_test > 0) std::cerr << "FAILED " << test.name << " (" << failures_of_this_test << " checks)\n";
  return failures_of_this_test == 0;
}

}  // namespace outpace::test

int main(int argc, char** argv) {
  using namespace outpace::test;
  const std::vector<std::string> prefixes(argv + 1, argv + argc);
  int passed = 0, failed = 0;
  for (const Test& test : tests()) {
    const auto starts = [&](const std::string& prefix) { return test.name.starts_with(prefix); };
    if (!prefixes.empty() && std::none_of(prefixes.begin(), prefixes.end(), starts)) continue;
    ++(run(test) ? passed : failed);
  }
  std::cout << passed << " passed, " << failed << " failed\n";
  return failed == 0 && passed > 0 ? 0 : 1;
}
