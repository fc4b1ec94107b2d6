// A test is a named function; a CHECK that does not hold is printed and counted, and the test goes on.
#pragma once

#include <iostream>
#include <sstream>
#include <string>

namespace outpace::test {

void add_test(const char* name, void (*body)());
void fail(const char* file, int line, const std::string& what);

struct Registration {
  Registration(const char* name, void (*body)()) { add_test(name, body); }
};

template <class Left, class Right>
void check_equal(const Left& left, const Right& right, const char* text, const char* file, int line) {
  if (left == right) return;
  std::ostringstream what;
  what << text << ": " << left << " != " << right;
  fail(file, line, what.str());
}

}  // namespace outpace::test

// TEST(matrix_packs_every_format) { ... }: the file's subject is the name's first word, so that
// `outpace_tests matrix` runs all of matrix_test.cpp.
#define TEST(name)                                                          \
  static void test_##name();                                                \
  static const ::outpace::test::Registration registration_##name(#name, test_##name); \
  static void test_##name()

#define CHECK(condition)                                                     \
  do {                                                                       \
    if (!(condition)) ::outpace::test::fail(__FILE__, __LINE__, #condition); \
  } while (false)

#define CHECK_EQUAL(left, right) \
  ::outpace::test::check_equal((left), (right), #left " == " #right, __FILE__, __LINE__)

#define CHECK_THROWS(expression, Exception)                                                       \
  do {                                                                                            \
    bool caught = false;                                                                          \
    try {                                                                                         \
      (void)(expression);                                                                         \
    } catch (const Exception&) {                                                                  \
      caught = true;                                                                              \
    }                                                                                             \
    if (!caught) ::outpace::test::fail(__FILE__, __LINE__, #expression " did not throw " #Exception); \
  } while (false)
