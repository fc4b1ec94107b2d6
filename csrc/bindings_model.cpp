// Models and sessions for Python. The GIL is released during a pass and while waiting for one; a session's lock is
// never held while waiting for the GIL.

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cmath>

#include "bindings_arrays.h"
#include "model.h"

namespace outpace {

using SharedSession = std::shared_ptr<Session>;
using Ids = std::vector<int64_t>;
using ScoreWork = std::vector<std::tuple<SharedSession, Ids, Ids>>;

// Runs `act` with the session locked, and without the GIL.
template <class Act>
static auto locked(const SharedSession& session, Act&& act) {
  const nb::gil_scoped_release release;
  const std::lock_guard lock(session->cache()->busy);
  return act(*session);
}

static RopeShape rope_from(const nb::object& rope) {
  return {nb::cast<double>(rope.attr("theta")), nb::cast<std::vector<float>>(rope.attr("divisors")),
          nb::cast<float>(rope.attr("scale"))};
}

static ModelConfig config_from(const nb::object& config, int context) {
  const auto integer = [&](const char* name) { return nb::cast<int>(config.attr(name)); };
  ModelConfig c{};
  c.layers = integer("layers");
  c.hidden_size = integer("hidden_size");
  c.heads = integer("heads");
  c.kv_heads = integer("kv_heads");
  c.head_dim = integer("head_dim");
  c.ffn_size = integer("ffn_size");
  c.vocab_size = integer("vocab_size");
  c.context = context;
  c.rope_interleaved = nb::cast<bool>(config.attr("rope_interleaved"));
  c.norm_epsilon = nb::cast<float>(config.attr("norm_epsilon"));
  c.embedding_scale = nb::cast<float>(config.attr("embedding_scale"));
  const float scale = nb::cast<float>(config.attr("attention_scale"));
  c.attention_scale = scale > 0.0f ? scale : 1.0f / std::sqrt(float(c.head_dim));
  c.gate = nb::cast<std::string>(config.attr("gate")) == "gelu" ? Gate::gelu : Gate::silu;
  c.experts = integer("experts");
  c.experts_used = integer("experts_used");
  c.ropes.push_back(rope_from(config.attr("rope")));
  const nb::object windowed = config.attr("windowed_rope");
  if (!windowed.is_none()) c.ropes.push_back(rope_from(windowed));
  for (int layer = 0; layer < c.layers; ++layer) {
    const int window = nb::cast<int>(config.attr("window")(layer));
    c.shapes.push_back({window, window > 0 && !windowed.is_none() ? 1 : 0});
  }
  return c;
}

// The tensors under GGUF's names: a Matrix each, or an f32 array for a norm or a bias.
class Tensors {
 public:
  explicit Tensors(const nb::dict& tensors) : tensors_(tensors) {}

  SharedMatrix matrix(const std::string& name) const { return nb::cast<std::shared_ptr<Matrix>>(find(name)); }
  std::vector<float> vector(const std::string& name) const {
    const auto array = nb::cast<Vector>(find(name));
    return {array.data(), array.data() + array.size()};
  }
  std::vector<float> optional_vector(const std::string& name) const {
    return tensors_.contains(name.c_str()) ? vector(name) : std::vector<float>();
  }

 private:
  nb::handle find(const std::string& name) const {
    if (!tensors_.contains(name.c_str())) throw std::invalid_argument("the tensor '" + name + "' is missing");
    return tensors_[name.c_str()];
  }
  const nb::dict& tensors_;
};

static ModelWeights weights_from(const ModelConfig& config, const nb::dict& dict,
                                 const std::shared_ptr<FileRows>& embedding) {
  const Tensors tensors(dict);
  ModelWeights weights;
  for (int i = 0; i < config.layers; ++i) {
    const std::string at = "blk." + std::to_string(i) + ".";
    LayerWeights layer;
    layer.attention_norm = tensors.vector(at + "attn_norm.weight");
    layer.q_bias = tensors.optional_vector(at + "attn_q.bias");
    layer.k_bias = tensors.optional_vector(at + "attn_k.bias");
    layer.v_bias = tensors.optional_vector(at + "attn_v.bias");
    layer.q_norm = tensors.optional_vector(at + "attn_q_norm.weight");
    layer.k_norm = tensors.optional_vector(at + "attn_k_norm.weight");
    layer.attention_post_norm = tensors.optional_vector(at + "post_attention_norm.weight");
    layer.ffn_norm = tensors.vector(at + "ffn_norm.weight");
    layer.ffn_post_norm = tensors.optional_vector(at + "post_ffw_norm.weight");
    layer.q = tensors.matrix(at + "attn_q.weight");
    layer.k = tensors.matrix(at + "attn_k.weight");
    layer.v = tensors.matrix(at + "attn_v.weight");
    layer.out = tensors.matrix(at + "attn_output.weight");
    const std::string kind = config.experts > 0 ? "_exps.weight" : ".weight";
    if (config.experts > 0) layer.router = tensors.matrix(at + "ffn_gate_inp.weight");
    layer.gate = tensors.matrix(at + "ffn_gate" + kind);
    layer.up = tensors.matrix(at + "ffn_up" + kind);
    layer.down = tensors.matrix(at + "ffn_down" + kind);
    weights.layers.push_back(std::move(layer));
  }
  weights.output_norm = tensors.vector("output_norm.weight");
  weights.output = tensors.matrix(embedding != nullptr ? "output.weight" : "token_embd.weight");
  weights.embedding = embedding;
  return weights;
}

static void init_model(Model* self, const nb::object& config, const nb::dict& tensors,
                       const std::shared_ptr<FileRows>& embedding, int context, int threads, const std::string& kernel) {
  const ModelConfig c = config_from(config, context);
  new (self) Model(c, weights_from(c, tensors, embedding), threads, choose_kernels(kernel));
}

static nb::object hidden_of(const Model& model, const Outputs& outputs, size_t first, size_t rows, size_t taps) {
  if (!outputs.hidden) return nb::none();
  const size_t hidden = model.config().hidden_size;
  return nb::cast(as_array(outputs.hidden, first * taps * hidden, {rows, taps, hidden}));
}

static nb::list score(Model& model, const ScoreWork& work, const std::vector<int>& taps) {
  std::vector<Work> items;
  std::vector<size_t> rows;
  items.reserve(work.size());
  for (const auto& [session, tokens, parents] : work) {
    items.push_back({session, as_int32(tokens, "token ids"), as_int32(parents, "parents")});
    rows.push_back(tokens.size());
  }
  Outputs outputs;
  {
    const nb::gil_scoped_release release;
    outputs = model.score(std::move(items), taps);
  }
  nb::list results;
  size_t first = 0;
  const size_t vocab = model.output_size();
  for (const size_t count : rows) {
    results.append(nb::make_tuple(as_array(outputs.logits, first * vocab, {count, vocab}),
                                  hidden_of(model, outputs, first, count, taps.size())));
    first += count;
  }
  return results;
}

static nb::object prefill(Model& model, const SharedSession& session, const Ids& tokens, const std::vector<int>& taps) {
  std::vector<int32_t> ids = as_int32(tokens, "token ids");
  Outputs outputs;
  {
    const nb::gil_scoped_release release;
    outputs = model.prefill(session, std::move(ids), taps);
  }
  return hidden_of(model, outputs, 0, tokens.size(), taps.size());
}

static NumpyFloats embed(Model& model, const Ids& tokens) {
  return as_array(model.embed(as_int32(tokens, "token ids")), 0, {tokens.size(), size_t(model.config().hidden_size)});
}

static NumpyFloats output_rows(Model& model, const Ids& tokens) {
  const size_t width = model.config().hidden_size;
  return as_array(model.output_rows(as_int32(tokens, "token ids")), 0, {tokens.size(), width});
}

static NumpyFloats head(Model& model, const Table& hidden) {
  const size_t rows = hidden.shape(0);
  if (hidden.shape(1) != size_t(model.config().hidden_size))
    throw std::invalid_argument("hidden must have " + std::to_string(model.config().hidden_size) + " columns, got " +
                                std::to_string(hidden.shape(1)));
  Floats logits;
  {
    const nb::gil_scoped_release release;
    logits = model.head(hidden.data(), int(rows));
  }
  return as_array(logits, 0, {rows, size_t(model.output_size())});
}

static void bind_session(nb::module_& module) {
  using namespace nanobind::literals;
  nb::class_<Session>(module, "Session", "The cached tokens of one request, and the nodes that wait for commit().")
      .def_prop_ro("length", [](const SharedSession& s) { return locked(s, [](Session& it) { return it.length(); }); },
                   "Tokens in the cache.")
      .def_prop_ro("tokens", [](const SharedSession& s) { return locked(s, [](Session& it) { return it.tokens(); }); },
                   "The tokens in the cache.")
      .def_prop_ro("closed", [](const SharedSession& s) { return locked(s, [](Session& it) { return it.closed(); }); })
      .def("fork",
           [](const SharedSession& s, int length) { return locked(s, [&](Session& it) { return it.fork(length); }); },
           "length"_a, "Returns a session that holds the first `length` tokens; whole pages are shared.")
      .def("rewind",
           [](const SharedSession& s, int length) { locked(s, [&](Session& it) { it.rewind(length); }); },
           "length"_a, "Forgets what follows the first `length` tokens.")
      .def("commit",
           [](const SharedSession& s, const std::vector<int>& path) { locked(s, [&](Session& it) { it.commit(path); }); },
           "path"_a, "Keeps the first scored token and the nodes of a path from it down, forgets the others.")
      .def("close", [](const SharedSession& s) { locked(s, [](Session& it) { it.close(); }); },
           "Gives the cache back.");
}

}  // namespace outpace

void bind_model(nanobind::module_& module) {
  using namespace outpace;
  using namespace nanobind::literals;
  bind_session(module);
  module.attr("page_positions") = kPagePositions;
  nb::class_<Model>(module, "Model", "A decoder of the Llama family.")
      .def("__init__", &init_model, "config"_a, "tensors"_a, "embedding"_a.none(), "context"_a, "threads"_a,
           "kernel"_a = "")
      .def("open", &Model::open, "Returns an empty session.")
      .def("score", &score, "work"_a, "taps"_a = nb::tuple(),
           "Returns (logits [N + 1, V], hidden [N + 1, taps, H] or None) for each (session, tokens [N + 1], parents "
           "[N]): tokens[0] follows the session's cached ones, node i = tokens[i + 1] follows node parents[i], or "
           "tokens[0] for -1.")
      .def("prefill", &prefill, "session"_a, "tokens"_a, "taps"_a = nb::tuple(),
           "Caches tokens after those of the session; returns hidden [N, taps, H] or None.")
      .def("embed", &embed, "tokens"_a, "Returns the embeddings [N, H] f32.")
      .def("output_rows", &output_rows, "tokens"_a, "Returns the rows [N, H] f32 of the output matrix.")
      .def("head", &head, "hidden"_a, "Returns the logits [N, V] of the last layer's outputs [N, H].")
      .def_prop_ro("kernel", [](const Model& m) { return m.kernels().name; })
      .def_prop_ro("threads", &Model::threads)
      .def_prop_ro("context", [](const Model& m) { return m.config().context; })
      .def_prop_ro("pass_bytes", &Model::pass_bytes, "Bytes of weights that one pass reads.")
      .def_prop_ro("weight_bytes", &Model::weight_bytes, "Bytes of weights in memory.")
      .def_prop_ro("scratch_bytes", &Model::scratch_bytes, "Bytes of working memory, without logits.")
      .def_prop_ro("page_bytes", [](const Model& m) { return m.cache().shape.page() * sizeof(uint16_t); },
                   "Bytes of a page of page_positions positions.")
      .def_prop_ro("pages_in_use", [](const Model& m) { return m.cache().pages_in_use(); })
      .def_prop_ro("pages_free", [](const Model& m) { return m.cache().pages_free(); });
}
