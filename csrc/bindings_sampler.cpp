// The Python face of the fused sampler.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <optional>
#include <string>

#include "sampler.h"

namespace nb = nanobind;

namespace {

using LogitRow = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Mask = std::optional<nb::ndarray<const uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>>;
using ProbsRow = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

class FusedSampler {
 public:
  FusedSampler(const outpace::SamplerSettings& settings, uint64_t seed, uint32_t choice)
      : settings_(settings), seed_(seed), choice_(choice) {}

  int64_t draw(const LogitRow& row, uint32_t purpose, uint32_t place, uint32_t node, const Mask& mask) const {
    const outpace::sampling::NoiseKey key{seed_, place, node, choice_ << 8 | purpose};
    return outpace::draw_token(row.data(), static_cast<int64_t>(row.shape(0)), words(mask, row), settings_, key);
  }

  bool probs(const LogitRow& row, const ProbsRow& out, const Mask& mask) const {
    if (out.shape(0) != row.shape(0)) {
      const std::string sizes = std::to_string(row.shape(0)) + " logits, got " + std::to_string(out.shape(0));
      throw nb::value_error(("probs needs as many places as " + sizes).c_str());
    }
    const auto n = static_cast<int64_t>(row.shape(0));
    return outpace::token_probs(row.data(), n, words(mask, row), settings_, out.data());
  }

 private:
  static const uint32_t* words(const Mask& mask, const LogitRow& row) {
    if (!mask) return nullptr;
    if (mask->shape(0) * 32 < row.shape(0)) {
      const std::string sizes = std::to_string(row.shape(0)) + " logits, got " + std::to_string(mask->shape(0));
      throw nb::value_error(("a mask needs a word of 32 bits for every 32 of " + sizes).c_str());
    }
    return mask->data();
  }

  outpace::SamplerSettings settings_;
  uint64_t seed_;
  uint32_t choice_;
};

}  // namespace

void bind_sampler(nb::module_& module) {
  nb::class_<FusedSampler>(module, "FusedSampler")
      .def(
          "__init__",
          [](FusedSampler* self, bool greedy, double temperature, int64_t top_k, double top_p, double min_p,
             uint64_t seed, uint32_t choice) {
            new (self) FusedSampler({greedy, temperature, top_k, top_p, min_p}, seed, choice);
          },
          nb::arg("greedy"), nb::arg("temperature"), nb::arg("top_k"), nb::arg("top_p"), nb::arg("min_p"),
          nb::arg("seed"), nb::arg("choice"))
      .def("draw", &FusedSampler::draw, nb::arg("row"), nb::arg("purpose"), nb::arg("place"), nb::arg("node"),
           nb::arg("mask") = nb::none(), "Returns the token drawn, or -1 where the row cannot be sampled.")
      .def("probs", &FusedSampler::probs, nb::arg("row"), nb::arg("out").noconvert(),
           nb::arg("mask") = nb::none(), "Writes the law [V] after the filters; False where the row cannot be sampled.");
}
