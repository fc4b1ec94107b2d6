// The table of kernels that one instruction set provides. The portable table is the readable reference; every other
// table gives the same bits: each output element is computed in the order that the portable file states.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace outpace {

constexpr int kPanelRows = 32;      // output rows of a weight panel = two 512-bit registers of f32
constexpr int kPagePositions = 64;  // positions of a cache page = positions of a softmax block

struct Matrix;       // matrix.h: weights in panels of kPanelRows output rows
struct Activations;  // matrix.h: rows of activations, as f32 and as int8 with scales and block sums
struct Products;     // matrix.h: where a product goes

struct AttentionTask;  // attention.h: query rows, and their keys and values in blocks of kPagePositions slots

struct SamplerPasses;  // sampler_passes.h
struct Probes;         // measure.h

struct Kernels {
  const char* name;

  // -- matrix products ------------------------------------------------------------------------------------------
  // Quantises columns [col0, col1) of all rows of `x` (f32, already stored there) in the way that the matrices reading it
  // need: whole blocks of 32, or of 256 where it wants those. Disjoint columns may be quantised by several threads.
  void (*quantise)(Activations& x, int col0, int col1);
  // Every output in panels [panel0, panel1) of every row of x.
  void (*multiply)(const Matrix& w, int panel0, int panel1, const Activations& x, const Products& y);

  // -- one row of f32 ---------------------------------------------------------------------------------------------
  // sums[i] = the sum of squares of x[32 i .. 32 i + 31]; n floats, the last sum may have fewer.
  void (*panel_squares)(const float* x, float* sums, int n);
  // y = x * factor * weight, n floats.
  void (*scale)(const float* x, float factor, const float* weight, float* y, int n);
  // y = silu(gate) * up
  void (*silu_multiply)(const float* gate, const float* up, float* y, int n);
  void (*gelu_multiply)(const float* gate, const float* up, float* y, int n);  // by tanh
  void (*add)(const float* x, float* y, int n);  // y += x
  // Rotates one head in place. cos, sin: [head_dim / 2]. `interleaved`: pairs (2i, 2i + 1), else (i, i + head_dim/2).
  void (*rope)(float* head, const float* cos, const float* sin, int head_dim, bool interleaved);
  void (*to_f16)(const float* x, uint16_t* y, int n);

  // -- attention ----------------------------------------------------------------------------------------------------
  void (*attend)(const AttentionTask& task);

  // -- what else an instruction set has of its own ------------------------------------------------------------------
  const SamplerPasses& (*sampler)();
  const Probes& (*probes)();
};

const Kernels& portable_kernels();
#ifdef OUTPACE_X86_64
const Kernels& avx512vnni_kernels();
const Kernels& avxvnni_kernels();  // AVX2 with the dot instruction that later processors have beside it
const Kernels& avx2_kernels();
#endif
#ifdef OUTPACE_AARCH64
const Kernels& neoni8mm_kernels();  // with the 8-bit matrix product
const Kernels& neon_kernels();      // with the dot product
#endif

// The kernels that this processor runs, best first; `portable` is always there.
std::vector<const Kernels*> available_kernels();
// The best of them, or the one that `name` (or else the environment's OUTPACE_KERNEL) asks for.
// Throws std::invalid_argument with the available names when that one is unknown or cannot run here.
const Kernels& choose_kernels(const std::string& name = "");

// The processor's features that kernels ask for, as compilers name them: "avx2", "dotprod".
std::vector<std::string> cpu_features();

}  // namespace outpace
