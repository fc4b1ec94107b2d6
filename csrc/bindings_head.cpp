// Draft heads for Python. The GIL is released during a pass.

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "bindings_arrays.h"
#include "bindings_growth.h"
#include "head.h"
#include "head_guide.h"
#include "messages.h"

namespace outpace {

using SharedHeadSession = std::shared_ptr<HeadSession>;
using Ids = std::vector<int64_t>;
using Features = nb::ndarray<const float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

static void init_head(DraftHead* self, std::shared_ptr<Model> layer, std::shared_ptr<Model> target,
                      const Ids& draft_ids, const Table& tap_norms, const Table& mask, std::shared_ptr<Matrix> fuse,
                      std::shared_ptr<Matrix> embed, std::shared_ptr<Matrix> state) {
  HeadWeights weights;
  weights.draft_ids = as_int32(draft_ids, "draft_ids");
  weights.tap_norms.assign(tap_norms.data(), tap_norms.data() + tap_norms.size());
  weights.mask.assign(mask.data(), mask.data() + mask.size());
  weights.fuse = std::move(fuse);
  weights.embed = std::move(embed);
  weights.state = std::move(state);
  new (self) DraftHead(std::move(layer), std::move(target), std::move(weights));
}

static void check_features(const DraftHead& head, const Features& hidden, const Ids& tokens) {
  if (hidden.shape(0) != tokens.size() || hidden.shape(1) != size_t(head.taps()) ||
      hidden.shape(2) != size_t(head.hidden_size()))
    throw std::invalid_argument("hidden must be [tokens, " + std::to_string(head.taps()) + ", " +
                                std::to_string(head.hidden_size()) + "]");
}

static NumpyFloats begin(DraftHead& head, const SharedHeadSession& session, const Features& hidden, const Ids& tokens,
                         int ahead) {
  check_features(head, hidden, tokens);
  const std::vector<int32_t> ids = as_int32(tokens, "token ids");
  Floats logits;
  {
    const nb::gil_scoped_release release;
    logits = head.begin(*session, hidden.data(), ids, ahead);
  }
  return as_array(logits, 0, {size_t(1 + ahead), size_t(head.draft_vocab())});
}

static NumpyFloats grow_nodes(DraftHead& head, const SharedHeadSession& session, const Ids& parents, const Ids& tokens) {
  const std::vector<int32_t> above = as_int32(parents, "parents"), ids = as_int32(tokens, "token ids");
  Floats logits;
  {
    const nb::gil_scoped_release release;
    logits = head.grow(*session, above, ids);
  }
  return as_array(logits, 0, {ids.size(), size_t(head.draft_vocab())});
}

// The whole draft of a request that draws nothing at random, in one call: ([token], [parent], [probability]).
static nb::tuple draft(DraftHead& head, const SharedHeadSession& session, const Features& hidden, const Ids& tokens,
                       int depth, int width, int beam, float worth_a_pass, const std::vector<float>& prices) {
  check_features(head, hidden, tokens);
  const std::vector<int32_t> ids = as_int32(tokens, "token ids");
  std::vector<TreeNode> tree;
  {
    const nb::gil_scoped_release release;
    const Floats logits = head.begin(*session, hidden.data(), ids, 0);
    tree = head.tree(*session, logits.get(), {depth, width, beam, worth_a_pass, prices});
  }
  nb::list found, parents, probabilities;
  for (const TreeNode& node : tree) {
    found.append(node.token);
    parents.append(node.parent);
    probabilities.append(node.probability);
  }
  return nb::make_tuple(found, parents, probabilities);
}

// Hidden states [rows, taps, H] of a pass; of row 0 and the rows path[i] + 1, or of all rows.
using Scored = std::vector<std::pair<Features, std::optional<std::vector<int>>>>;

// Those of committed tokens, one after the other [tokens, taps, H].
static std::vector<float> picked(const DraftHead& head, const Scored& scored, size_t tokens) {
  const size_t row = size_t(head.taps()) * head.hidden_size();
  std::vector<float> rows;
  rows.reserve(tokens * row);
  bool fit = true;
  for (const auto& [hidden, path] : scored) {
    fit = hidden.shape(1) == size_t(head.taps()) && hidden.shape(2) == size_t(head.hidden_size());
    if (!fit) break;
    const int64_t held = int64_t(hidden.shape(0));
    const auto take = [&](int64_t first, int64_t count) {
      if (first < 0 || first + count > held)
        throw std::invalid_argument("a path's rows must be among the " + std::to_string(held) +
                                    " of its pass, got row " + std::to_string(first));
      rows.insert(rows.end(), hidden.data() + first * row, hidden.data() + (first + count) * row);
    };
    take(0, path ? 1 : held);
    if (!path) continue;
    for (const int node : *path) take(int64_t(node) + 1, 1);
  }
  if (!fit || rows.size() != tokens * row)
    throw std::invalid_argument("hidden must have " + std::to_string(tokens) + " rows of [" +
                                std::to_string(head.taps()) + ", " + std::to_string(head.hidden_size()) + "]");
  return rows;
}

// A tree that grows from counts and, where they miss the next token with at least the probability `least_miss`, at its
// root from the head's law, too: (tokens, parents, probs), what the counts miss, and the tokens that the law gained.
static nb::tuple blend(DraftHead& head, const SharedHeadSession& session, const Scored& scored, const Ids& tokens,
                       const AskedLayers& layers, const std::vector<int32_t>& tail, int depth,
                       const std::vector<double>& prices, std::pair<int, int> widths, double odds,
                       const AskedNoise& noise, double temperature, double least_miss) {
  if (!(temperature > 0)) throw std::invalid_argument("temperature must be above 0, got " + shown(temperature));
  const std::vector<int32_t> ids = as_int32(tokens, "token ids");
  const std::vector<ContextLayer> asked = as_layers(layers);
  const std::optional<DrawNoise> drawn = as_noise(noise);
  std::vector<GrownNode> nodes;
  double miss = 1.0;
  std::optional<double> gained;
  {
    const nb::gil_scoped_release release;
    nodes = grow(asked, tail, {depth, prices, widths.first, odds, drawn});
    for (const GrownNode& node : nodes)
      if (node.parent < 0) miss -= node.prob;
    if (miss >= least_miss) {
      const std::vector<float> hidden = picked(head, scored, ids.size());
      HeadGuide guide(head, *session, hidden.data(), ids, temperature, drawn);
      const double before = expected_gain(nodes, prices);
      nodes = grow(asked, tail, {depth, prices, widths.second, odds, drawn, &guide});
      gained = expected_gain(nodes, prices) - before;
    }
  }
  return nb::make_tuple(as_tuples(nodes), miss, gained);
}

static std::vector<std::pair<int, float>> top(const Vector& logits, int count) {
  std::vector<Candidate> found(std::max(count, 0));
  top_tokens(logits.data(), int(logits.size()), count, found.data());
  std::vector<std::pair<int, float>> out;
  for (const Candidate& one : found) out.emplace_back(one.place, one.probability);
  return out;
}

}  // namespace outpace

void bind_head(nanobind::module_& module) {
  using namespace outpace;
  using namespace nanobind::literals;
  nb::class_<HeadSession>(module, "HeadSession", "The committed rows of one request, and the draft at hand.")
      .def_prop_ro("length", [](const HeadSession& s) { return s.cache->length(); }, "Rows in the cache.")
      .def("close", [](HeadSession& s) {
        const nb::gil_scoped_release release;
        const std::lock_guard lock(s.cache->cache()->busy);
        s.cache->close();
      }, "Gives the cache back.");
  nb::class_<DraftHead>(module, "DraftHead", "One decoder layer that goes on from the target's features.")
      .def("__init__", &init_head, "layer"_a, "target"_a, "draft_ids"_a, "tap_norms"_a, "mask"_a, "fuse"_a, "embed"_a, "state"_a)
      .def("open", &DraftHead::open, "Returns an empty session.")
      .def("begin", &begin, "session"_a, "hidden"_a, "tokens"_a, "ahead"_a = 0,
           "Adds committed tokens with the target's hidden states before each [tokens, taps, H]; returns the logits "
           "[1 + ahead, draft_vocab] of the last row and of mask rows after it.")
      .def("grow", &grow_nodes, "session"_a, "parents"_a, "tokens"_a,
           "Adds nodes to the draft (parents among all nodes, -1 = the last committed row); returns their logits.")
      .def("draft", &draft, "session"_a, "hidden"_a, "tokens"_a, "depth"_a, "width"_a, "beam"_a,
           "worth_a_pass"_a, "prices"_a,
           "Begins a draft and returns the tree ([token], [parent], [probability]) of its most probable paths. prices: "
           "the least path probability of each node in its turn.")
      .def("blend", &blend, "session"_a, "scored"_a, "tokens"_a, "layers"_a, "tail"_a, "depth"_a, "prices"_a,
           "widths"_a, "odds"_a, "noise"_a.none(), "temperature"_a, "least_miss"_a,
           "Returns `grow`'s tree, the probability that its first level misses, and None; where that is at least "
           "`least_miss`, begins a draft instead and returns the tree that knows the head's law of the tail's "
           "continuations, too, and what it is expected to gain over the other. scored: [(hidden [rows, taps, H], the "
           "accepted path or None = all rows)] of the committed tokens. widths: of either tree.")
      .def_prop_ro("taps", &DraftHead::taps)
      .def_prop_ro("block", &DraftHead::block)
      .def_prop_ro("draft_vocab", &DraftHead::draft_vocab)
      .def_prop_ro("pass_bytes", &DraftHead::pass_bytes, "Bytes of weights that the first pass of a draft reads.");
  module.def("top_tokens", &top, "logits"_a, "count"_a,
             "Returns [(place, probability)] of the largest logits of a row, largest first.");
}
