// The Python face of the context counts.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "contexts.h"

namespace nb = nanobind;
using outpace::ContextCounts;

namespace {

nb::tuple grown(const std::vector<std::tuple<const ContextCounts*, double>>& layers, const std::vector<int32_t>& tail,
                int depth, const std::vector<double>& prices, int width, double scale,
                const std::optional<std::tuple<uint64_t, uint32_t, uint32_t>>& noise) {
  std::vector<outpace::ContextLayer> asked;
  for (const auto& [counts, prior] : layers) {
    if (counts == nullptr) throw nb::value_error("a layer must have counts, got None");
    asked.push_back({counts, prior});
  }
  std::optional<outpace::DrawNoise> drawn;
  if (noise) drawn = std::make_from_tuple<outpace::DrawNoise>(*noise);
  const std::vector<outpace::GrownNode> nodes = outpace::grow(asked, tail, {depth, prices, width, scale, drawn});
  std::vector<int32_t> tokens, parents;
  std::vector<double> probs;
  for (const outpace::GrownNode& node : nodes) {
    tokens.push_back(node.token);
    parents.push_back(node.parent);
    probs.push_back(node.prob);
  }
  return nb::make_tuple(nb::tuple(nb::cast(tokens)), nb::tuple(nb::cast(parents)), nb::tuple(nb::cast(probs)));
}

}  // namespace

void bind_contexts(nb::module_& module) {
  nb::class_<ContextCounts>(module, "ContextCounts")
      .def(nb::init<int>(), nb::arg("depth"))
      .def_prop_ro("depth", &ContextCounts::depth)
      .def_prop_ro("contexts", &ContextCounts::contexts)
      .def_prop_ro("nbytes", &ContextCounts::bytes)
      .def(
          "feed",
          [](ContextCounts& counts, const std::vector<int32_t>& tokens, size_t first) { counts.feed(tokens, first); },
          nb::arg("tokens"), nb::arg("first") = 0, "Counts tokens[first:], each after the tokens before it.");
  module.def("grow", &grown, nb::arg("layers"), nb::arg("tail"), nb::arg("depth"), nb::arg("prices"),
             nb::arg("width"), nb::arg("scale") = 1.0, nb::arg("noise") = nb::none(),
             "Returns (tokens, parents, probs) of the likely continuations of `tail`, the most probable first.");
}
