// The feed-forward part of a mixture of experts: each row takes a few experts, and rows that take the same one meet its
// weights together. A row's result is the sum over its experts in the order of their scores, whoever else takes them.
#pragma once

#include <vector>

#include "model.h"

namespace outpace {

class Mixture {
 public:
  Mixture(const Model& model, int max_rows, const std::vector<Range>& hidden_panels);

  // Row by row of `product`: the sum over the row's experts, on the columns of this thread's panels. Products with the
  // rows of `x` are to be multiplied by `factors`. By all threads of a job at once, with barriers.
  void run(int layer, const Activations& x, const float* factors, const Products& product, int thread);
  size_t bytes() const;

 private:
  struct Expert {
    Matrix gate, up, down;
  };
  // Rows of a block that an expert serves together: pairs [first, first + count) of `Own::pairs`.
  struct Unit {
    int expert, first, count;
  };
  // What a thread alone touches. Every thread plans for itself: that takes less than an exchange.
  struct Own {
    Activations in, activated;
    float factors[kRowTile];          // of the rows in `in`
    std::vector<int> chosen, places;  // [row][slot]: the expert, and which pair it is
    std::vector<float> shares;        // [row][slot]: what the expert's output is multiplied by
    std::vector<int> pairs;           // [pair]: the row, grouped by expert
    std::vector<Unit> units;
    Own(int max_rows, const ModelConfig& config);
  };

  void choose(int rows, Own& own) const;
  void group(int rows, Own& own) const;
  void gate_and_up(const std::vector<Expert>& experts, const Activations& x, const float* factors, bool once,
                   int thread);
  void down(const std::vector<Expert>& experts, bool once, int thread);
  void sum(int rows, const Products& product, int thread);

  const Model& model_;
  const ModelConfig& config_;
  const Kernels& kernels_;
  ThreadPool& pool_;
  const int threads_;
  const std::vector<Range> hidden_panels_;  // by thread
  std::vector<std::vector<Expert>> experts_;  // [layer][expert]: views
  std::vector<Range> ffn_panels_;             // by thread
  const size_t pairs_;                        // at most
  const Floats scores_, gate_, up_, out_;     // [row][expert]; [pair] of: ffn, ffn, hidden
  std::vector<float> ones_;
  std::vector<Own> own_;
};

}  // namespace outpace
