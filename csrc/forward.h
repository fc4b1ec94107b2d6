// One pass of the rows that are staged in some sessions through all layers: what each thread does, phase by phase.
#pragma once

#include <cstdint>
#include <vector>

#include "attention.h"
#include "mixture.h"
#include "model.h"
#include "shares.h"

namespace outpace {

class ForwardPass {
 public:
  explicit ForwardPass(const Model& model);

  static constexpr int kRows = 128;     // of a block: a longer pass goes block by block
  static constexpr int kTaskRows = 32;  // of one call of the attention kernel

  // Rows [first, first + rows) of all the staged ones. soon: see ThreadPool::run.
  void run(const std::vector<Session*>& sessions, int first, int rows, const std::vector<int>& taps,
           bool wants_logits, const float* inputs, const Outputs& outputs, Stretches soon);
  void run_head(const float* hidden, int rows, float* logits);
  size_t bytes() const;

 private:
  // Rows of one session that one call of the attention kernel takes.
  struct Task {
    Session* session;
    int session_row;  // the first one, among the session's staged rows
    int row;          // the first one, in this block
    int rows;
    Task first(int n) const { return {session, session_row, row, n}; }
    Task after(int n) const { return {session, session_row + n, row + n, rows - n}; }
  };
  // Where the heads of a thread are: of row m, head h at m * stride + h * head_dim.
  struct Projections {
    float *q, *k, *v;
    ptrdiff_t q_stride, kv_stride;
  };
  // What a thread alone touches.
  struct Own {
    std::vector<const uint16_t*> keys, values;
    std::vector<float> attention;
    std::vector<uint16_t> key, value;
    std::vector<int> visible;
    std::vector<float> inverse_rms;  // [kRows], of what invert_rms() was asked for last
    Own(const ModelConfig& config, int context);
  };

  void begin(int rows);
  void plan(const std::vector<Session*>& sessions, int first);
  void layers(int thread);
  void embed(int thread);
  void take_columns(int thread);
  void tap(int layer, int thread);
  void add_up_squares(const OwnColumns& rows, float* squares, int thread);
  void invert_rms(const float* squares, int thread);
  const Activations& normalise(const std::vector<float>& weight, int thread);
  void normalise_head(const std::vector<float>& weight, float* head) const;
  const Activations& hand_over(SharedActivations& shared, int thread);
  void project(const LayerWeights& layer, const Activations& x, int thread);
  const uint8_t* first_weights(int layer, int thread) const;
  void attention(const LayerWeights& layer, int index, int thread);
  void rotate_queries(const LayerWeights& weights, int layer, const Task& task, Range heads, int thread);
  void store(const LayerWeights& weights, int layer, const Task& task, int kv_head, int thread);
  void attend(int layer, const Task& task, Range heads, int owner, int thread);
  bool worth_lending() const;
  Products own_product(int thread, const uint8_t* next) const;
  void multiply_own(const Matrix& w, const Activations& x, int thread, const uint8_t* next);
  void add_product(const std::vector<float>& post_norm, int thread);
  void feed_forward(const LayerWeights& layer, int index, int thread);
  const Activations& activate(const LayerWeights& layer, const Activations& x, int thread);
  void head(int thread);
  OwnColumns own_columns(const Floats& all, int thread) const;  // of hidden_size
  Projections projections(int thread) const;

  const Model& model_;
  const ModelConfig& config_;
  const Kernels& kernels_;
  ThreadPool& pool_;
  const int threads_;

  SharedActivations normed_, attended_, activated_;
  std::vector<Range> hidden_panels_, ffn_panels_, vocab_panels_;  // by thread
  HeadShares heads_;
  // [kRows] of: hidden, q k v, ffn, hidden; OwnColumns, but for the embedded rows that `product_` has to begin with.
  const Floats x_, qkv_, up_, product_;
  const size_t squares_of_thread_;       // floats
  // [thread][row][panel of the thread]: of x and of products, summed over the panel's columns.
  const Floats squares_, post_squares_;
  std::vector<Own> own_;
  std::unique_ptr<Mixture> mixture_;  // null: one feed-forward part for all

  const bool outgrows_caches_;        // what a pass reads

  // The block at hand.
  int rows_ = 0;
  bool once_ = false;  // Products::once
  std::vector<Task> tasks_;
  bool lends_ = false;  // HeadShares::lent
  const std::vector<int>* taps_ = nullptr;
  const float* inputs_ = nullptr;  // of this block's first row; null: the tokens' embeddings
  float* hidden_ = nullptr;  // of this block's first row
  float* logits_ = nullptr;
};

}  // namespace outpace
