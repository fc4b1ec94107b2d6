// Counts, noise and grown trees on their way from and to Python.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <tuple>
#include <vector>

#include "contexts.h"

namespace outpace {

using AskedLayers = std::vector<std::tuple<const ContextCounts*, double>>;
using AskedNoise = std::optional<std::tuple<uint64_t, uint32_t, uint32_t>>;

inline std::vector<ContextLayer> as_layers(const AskedLayers& layers) {
  std::vector<ContextLayer> asked;
  for (const auto& [counts, prior] : layers) {
    if (counts == nullptr) throw nanobind::value_error("a layer must have counts, got None");
    asked.push_back({counts, prior});
  }
  return asked;
}

inline std::optional<DrawNoise> as_noise(const AskedNoise& noise) {
  if (!noise) return std::nullopt;
  return std::make_from_tuple<DrawNoise>(*noise);
}

// (tokens, parents, probs)
inline nanobind::tuple as_tuples(const std::vector<GrownNode>& nodes) {
  std::vector<int32_t> tokens, parents;
  std::vector<double> probs;
  for (const GrownNode& node : nodes) {
    tokens.push_back(node.token);
    parents.push_back(node.parent);
    probs.push_back(node.prob);
  }
  return nanobind::make_tuple(nanobind::tuple(nanobind::cast(tokens)), nanobind::tuple(nanobind::cast(parents)),
                              nanobind::tuple(nanobind::cast(probs)));
}

}  // namespace outpace
