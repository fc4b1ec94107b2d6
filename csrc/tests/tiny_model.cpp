#include "tiny_model.h"

#include <cmath>
#include <cstring>
#include <random>

#include "numerics.h"

namespace outpace::test {

using Random = std::mt19937;

static float uniform(Random& random, float low, float high) {
  return low + (high - low) * float(random() >> 8) * 0x1p-24f;
}

// Where a block of the file has its f16 scales, and their sizes for weights of about `size`.
static void write_scales(Format format, Random& random, float size, uint8_t* block) {
  const auto half = [&](int at, float value) {
    const uint16_t bits = numerics::f32_to_f16(value * uniform(random, 0.5f, 1.0f));
    std::memcpy(block + at, &bits, sizeof bits);
  };
  switch (format) {
    case Format::q4_0: half(0, size / 8); break;
    case Format::q4_1: half(0, size / 8), half(2, -size); break;
    case Format::q5_0: half(0, size / 16); break;
    case Format::q5_1: half(0, size / 16), half(2, -size); break;
    case Format::q8_0: half(0, size / 128); break;
    case Format::q2_k: half(80, size / 24), half(82, size / 12); break;
    case Format::q3_k: half(108, size / 64); break;
    case Format::q4_k: half(0, size / 400), half(2, size / 50); break;
    case Format::q5_k: half(0, size / 800), half(2, size / 50); break;
    case Format::iq4_nl: half(0, size / 128); break;
    case Format::iq4_xs: half(0, size / 2048); break;
    case Format::q6_k:
      for (int i = 192; i < 208; ++i) block[i] = uint8_t(int(random() % 64) - 32);
      half(208, size / 640);
      break;
    default: break;
  }
}

static std::vector<uint8_t> file_bytes(Format format, int rows, int cols, Random& random) {
  const float size = 1.5f / std::sqrt(float(cols));
  const FormatInfo& info = format_info(format);
  std::vector<uint8_t> bytes(size_t(rows) * (cols / info.block) * info.file_bytes);
  for (size_t at = 0; at < bytes.size(); at += info.file_bytes) {
    uint8_t* const block = bytes.data() + at;
    if (info.block > 1) {
      for (int i = 0; i < info.file_bytes; ++i) block[i] = uint8_t(random() >> 16);
      write_scales(format, random, size, block);
      continue;
    }
    const float value = uniform(random, -size, size);
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const uint16_t narrow = format == Format::bf16 ? uint16_t(bits >> 16) : numerics::f32_to_f16(value);
    if (format == Format::f32) std::memcpy(block, &bits, sizeof bits);
    else std::memcpy(block, &narrow, sizeof narrow);
  }
  return bytes;
}

std::unique_ptr<Model> tiny_model(const TinyShape& shape, int threads, const Kernels& kernels, uint32_t seed) {
  Random random(seed);
  size_t turn = 0;
  const auto matrix = [&](int rows, int cols) {
    const Format format = shape.formats[turn++ % shape.formats.size()];
    auto w = std::make_shared<Matrix>(format, rows, cols);
    const std::vector<uint8_t> bytes = file_bytes(format, rows, cols, random);
    w->pack(0, rows, bytes.data(), bytes.size());
    return w;
  };
  const auto vector = [&](int size, float middle) {
    std::vector<float> v(size);
    for (float& x : v) x = middle + uniform(random, -0.2f, 0.2f);
    return v;
  };
  const auto bias = [&](int size) { return shape.biases ? vector(size, 0.0f) : std::vector<float>(); };

  ModelConfig config{};
  config.layers = shape.layers;
  config.hidden_size = shape.hidden_size;
  config.heads = shape.heads;
  config.kv_heads = shape.kv_heads;
  config.head_dim = shape.head_dim;
  config.ffn_size = shape.ffn_size;
  config.vocab_size = shape.vocab_size;
  config.context = shape.context;
  config.ropes = {{10000.0, {}}};
  config.shapes.resize(shape.layers);
  config.attention_scale = 1.0f / std::sqrt(float(shape.head_dim));
  config.rope_interleaved = shape.rope_interleaved;
  config.norm_epsilon = 1e-5f;

  ModelWeights weights;
  for (int i = 0; i < shape.layers; ++i) {
    LayerWeights layer;
    layer.attention_norm = vector(shape.hidden_size, 1.0f);
    layer.ffn_norm = vector(shape.hidden_size, 1.0f);
    layer.q_bias = bias(config.query_size());
    layer.k_bias = bias(config.kv_size());
    layer.v_bias = bias(config.kv_size());
    layer.q = matrix(config.query_size(), shape.hidden_size);
    layer.k = matrix(config.kv_size(), shape.hidden_size);
    layer.v = matrix(config.kv_size(), shape.hidden_size);
    layer.out = matrix(shape.hidden_size, config.query_size());
    layer.gate = matrix(shape.ffn_size, shape.hidden_size);
    layer.up = matrix(shape.ffn_size, shape.hidden_size);
    layer.down = matrix(shape.hidden_size, shape.ffn_size);
    weights.layers.push_back(std::move(layer));
  }
  weights.output_norm = vector(shape.hidden_size, 1.0f);
  weights.output = matrix(shape.vocab_size, shape.hidden_size);
  if (!shape.tied) {
    const Format format = shape.formats[0];
    auto rows = std::make_shared<FileRows>(format, shape.vocab_size, shape.hidden_size);
    const std::vector<uint8_t> bytes = file_bytes(format, shape.vocab_size, shape.hidden_size, random);
    rows->put(0, shape.vocab_size, bytes.data(), bytes.size());
    weights.embedding = rows;
  }
  return std::make_unique<Model>(config, std::move(weights), threads, kernels);
}

std::vector<int32_t> tiny_tokens(const TinyShape& shape, int count, uint32_t seed) {
  Random random(seed);
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) token = int32_t(random() % shape.vocab_size);
  return tokens;
}

}  // namespace outpace::test
