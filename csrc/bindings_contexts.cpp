// The Python face of the context counts.
#include "bindings_growth.h"

namespace nb = nanobind;
using outpace::ContextCounts;

namespace {

nb::tuple grown(const outpace::AskedLayers& layers, const std::vector<int32_t>& tail, int depth,
                const std::vector<double>& prices, int width, double odds, const outpace::AskedNoise& noise) {
  return outpace::as_tuples(
      outpace::grow(outpace::as_layers(layers), tail, {depth, prices, width, odds, outpace::as_noise(noise)}));
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
             nb::arg("width"), nb::arg("odds") = 1.0, nb::arg("noise") = nb::none(),
             "Returns (tokens, parents, probs) of the likely continuations of `tail`, the most probable first.");
}
