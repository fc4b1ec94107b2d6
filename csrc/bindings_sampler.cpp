// The Python face of the fused sampler.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <string>

#include "sampler.h"

namespace nb = nanobind;

namespace {

using LogitRow = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ProbsRow = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

class FusedSampler {
 public:
  FusedSampler(const outpace::SamplerSettings& settings, uint64_t seed, uint32_t choice)
      : settings_(settings), seed_(seed), choice_(choice) {}

  int64_t draw(const LogitRow& row, uint32_t purpose, uint32_t place, uint32_t node) const {
    const outpace::sampling::NoiseKey key{seed_, place, node, choice_ << 8 | purpose};
    return outpace::draw_token(row.data(), static_cast<int64_t>(row.shape(0)), settings_, key);
  }

  bool probs(const LogitRow& row, const ProbsRow& out) const {
    if (out.shape(0) != row.shape(0)) {
      const std::string sizes = std::to_string(row.shape(0)) + " logits, got " + std::to_string(out.shape(0));
      throw nb::value_error(("probs needs as many places as " + sizes).c_str());
    }
    return outpace::token_probs(row.data(), static_cast<int64_t>(row.shape(0)), settings_, out.data());
  }

 private:
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
           "Returns the token drawn, or -1 where the row cannot be sampled.")
      .def("probs", &FusedSampler::probs, nb::arg("row"), nb::arg("out").noconvert(),
           "Writes the law [V] after the filters; False where the row cannot be sampled.");
}
