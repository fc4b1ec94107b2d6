// Dense weights rounded to a quantised format when a model is loaded, in the layout that a file would have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "formats.h"

namespace outpace {

// `count` weights of F32, F16 or BF16 as blocks of Q8_0 or Q4_0. Throws std::invalid_argument for other formats, for a
// count that is not whole blocks, and for weights that are not finite or beyond what a scale in f16 can hold.
std::vector<uint8_t> round_weights(Format from, const uint8_t* weights, size_t count, Format to);

}  // namespace outpace
