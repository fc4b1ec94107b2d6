// A draft head: one decoder layer that goes on from the target's features, on the target's kernels.
//
// Row t of its cache stands for token t of the text: x = fuse(the target's hidden states at t) + embed(token t + 1), and
// its logits propose token t + 2. Later tokens of a draft have no hidden states of the target: their x is made of the
// layer's own output before them (eagle), or of the last row's x and a mask (parallel). What the numbers are is in
// src/outpace/train/network.py.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "model.h"

namespace outpace {

struct HeadWeights {
  std::vector<int32_t> draft_ids;    // the target's token at each row of the draft vocabulary
  std::vector<float> tap_norms;      // [taps][hidden_size]
  std::vector<float> mask;           // [block][hidden_size]
  SharedMatrix fuse, embed, state;
};

// One request: the committed rows in the layer's cache but the last one, which is row 0 of every draft.
struct HeadSession {
  explicit HeadSession(std::shared_ptr<Session> layer_cache) : cache(std::move(layer_cache)) {}

  const std::shared_ptr<Session> cache;
  std::vector<float> inputs;     // x of row 0 and of the draft's nodes
  Outputs outputs;               // of the last pass; its last rows are row 0 and the nodes
  int first_output = 0;          // where row 0 is among them
  std::vector<int32_t> parents;  // of the nodes; -1 = row 0
};

// depth: levels at most. width: continuations of a node that are looked at. beam: nodes of a level that are continued. A
// level is continued while its best path has the probability `worth_a_pass`. prices: the least path probability of each
// node in its turn, the most probable node first; as many as the tree may have nodes.
struct TreeShape {
  int depth, width, beam;
  float worth_a_pass;
  std::vector<float> prices;
};

struct TreeNode {
  int32_t token;      // of the target
  int32_t parent;     // among the nodes returned; -1 = the last committed token
  float probability;  // of its path
};

class DraftHead {
 public:
  // `layer` is a model of one layer whose output matrix has the draft vocabulary's rows. Throws std::invalid_argument
  // when shapes do not fit each other.
  DraftHead(std::shared_ptr<Model> layer, std::shared_ptr<Model> target, HeadWeights weights);

  std::shared_ptr<HeadSession> open() const;
  int taps() const { return taps_; }
  int block() const { return int(weights_.mask.size()) / hidden_; }
  int hidden_size() const { return hidden_; }
  int draft_vocab() const { return layer_->config().vocab_size; }
  const std::vector<int32_t>& draft_ids() const { return weights_.draft_ids; }
  // The draft vocabulary's row of a token, or -1.
  int place_of(int32_t token) const { return size_t(token) < places_.size() ? places_[size_t(token)] : -1; }
  const Kernels& kernels() const { return layer_->kernels(); }
  size_t pass_bytes() const;  // weights that the first pass of a draft reads

  // Adds committed tokens, each with the target's hidden states at the token before it: hidden [tokens][taps][H].
  // Returns the logits [1 + ahead][draft_vocab] of the last row and of `ahead` mask rows after it. Throws
  // std::invalid_argument.
  Floats begin(HeadSession& session, const float* hidden, const std::vector<int32_t>& tokens, int ahead);
  // Adds nodes to the draft, and returns their logits [tokens][draft_vocab]. parents: among all nodes, -1 = row 0.
  Floats grow(HeadSession& session, const std::vector<int32_t>& parents, const std::vector<int32_t>& tokens);
  // After begin(), whose logits these are: grows the most probable paths level by level, and returns the most probable
  // nodes, parents before children. Nothing is drawn at random.
  std::vector<TreeNode> tree(HeadSession& session, const float* logits, const TreeShape& shape);

 private:
  void committed_inputs(const float* hidden, const std::vector<int32_t>& tokens, float* out);
  void norm(const float* x, const float* weight, float* out);
  void unit_rows(const float* const* rows, int count, Activations& out);
  void combine(const Matrix& a, Activations& xa, const Matrix* b, Activations& xb, float* out);
  void check(const HeadSession& session) const;

  const std::shared_ptr<Model> layer_, target_;
  const HeadWeights weights_;
  const Stretches weights_soon_;
  std::vector<int32_t> places_;  // of the target's tokens in the draft vocabulary
  const int hidden_, taps_;
  const std::shared_ptr<ThreadPool> pool_;
  const std::vector<float> ones_;
  std::mutex busy_;  // of the buffers below
  Activations fused_, stated_, embedded_;
  std::vector<float> product_, squares_;
};

// A place in a row of logits, and its probability under the softmax over the row, to about 1e-4 of itself.
struct Candidate {
  int32_t place;
  float probability;
};
// Writes the `count` largest of a row, largest first; ties go to the first place.
void top_tokens(const float* logits, int columns, int count, Candidate* out);

}  // namespace outpace
