// The file layouts decoded a second time, weight by weight and with no code shared with formats.cpp; and random rows.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "formats.h"

namespace outpace::test {

// Where the f16 of a block are; -1: nowhere.
struct Halves {
  int scale, minimum;
};
Halves halves_of(Format format);

// Weight `k` of a row of the file.
float weight_of_file(Format format, const uint8_t* row, int k);

// What a file's rows may hold: any codes; f16 scales that are moderate, or, if `wild`, any bits at all.
std::vector<uint8_t> random_rows(Format format, int rows, int cols, bool wild, std::mt19937& random);

}  // namespace outpace::test
